package main

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/schema"
)

// bed is a database of its own with the product's tables. Its name is the relays' outbox.name too, since lanes belong
// to one table.
type bed struct {
	db      *sql.DB
	name    string // of the database
	url     string // as in database.url
	dialect outbox.Dialect
	undo    []func(context.Context) // what close does, the last first
}

func newBed(ctx context.Context, s settings) (_ *bed, err error) {
	u, err := url.Parse(s.database)
	if err != nil {
		return nil, fmt.Errorf("database URL cannot be read")
	}
	b := &bed{name: fmt.Sprintf("bench_%d", time.Now().UnixNano())}
	switch {
	case strings.HasPrefix(u.Scheme, "postgres"):
		b.dialect = outbox.Postgres
	case u.Scheme == "mariadb":
		b.dialect = outbox.MariaDB
	default:
		b.dialect = outbox.MySQL
	}
	admin, err := b.open(u)
	if err != nil {
		return nil, err
	}
	b.atClose(func(context.Context) { _ = admin.Close() })
	b.atClose(func(ctx context.Context) { removeGroup(ctx, s.kafka, b.name+".postrider") })
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	if _, err := admin.ExecContext(ctx, "CREATE DATABASE "+b.name); err != nil {
		return nil, fmt.Errorf("create database: %w", err)
	}
	drop := "DROP DATABASE " + b.name
	if b.dialect == outbox.Postgres {
		drop += " WITH (FORCE)" // a process that was killed may not have left yet
	}
	b.atClose(func(ctx context.Context) { _, _ = admin.ExecContext(ctx, drop) })
	u.Path = "/" + b.name
	b.url = u.String()
	if b.db, err = b.open(u); err != nil {
		return nil, err
	}
	b.atClose(func(context.Context) { _ = b.db.Close() })
	if _, err := schema.Apply(ctx, b.db, b.dialect); err != nil {
		return nil, fmt.Errorf("apply schema: %w", err)
	}
	return b, nil
}

func (b *bed) open(u *url.URL) (*sql.DB, error) {
	if b.dialect == outbox.Postgres {
		return sql.Open("pgx", u.String())
	}
	password, _ := u.User.Password()
	return sql.Open("mysql", fmt.Sprintf("%s:%s@tcp(%s)/%s?interpolateParams=true",
		u.User.Username(), password, u.Host, strings.TrimPrefix(u.Path, "/")))
}

func (b *bed) atClose(f func(context.Context)) { b.undo = append(b.undo, f) }

// close removes all that was made, also after an interrupt.
func (b *bed) close() {
	for _, f := range slices.Backward(b.undo) {
		f(context.Background())
	}
}

// fill writes n committed events straight into the table.
func (b *bed) fill(ctx context.Context, n, size, keys int, topic string) error {
	if err := b.insert(ctx, b.db, n, size, keys, topic); err != nil {
		return err
	}
	return b.vacuum(ctx)
}

// pend writes n events in one transaction, which its caller commits: then all are there at once, for relays that are
// at work already.
func (b *bed) pend(ctx context.Context, n, size, keys int, topic string) (*sql.Tx, error) {
	tx, err := b.db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	if err := b.insert(ctx, tx, n, size, keys, topic); err != nil {
		_ = tx.Rollback()
		return nil, err
	}
	return tx, nil
}

// execer is a database or a transaction.
type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

func (b *bed) insert(ctx context.Context, to execer, n, size, keys int, topic string) error {
	body := `{"note":"` + strings.Repeat("x", max(size-11, 0)) + `"}`
	chunk := max(1, min(20_000, 64<<20/max(size, 1))) // within what a server takes in one statement
	if b.dialect != outbox.Postgres {
		chunk = min(chunk, 1000) // MySQL and MariaDB end a recursive query there unless told otherwise
	}
	for from := 0; from < n; from += chunk {
		var err error
		if b.dialect == outbox.Postgres {
			_, err = to.ExecContext(ctx, `INSERT INTO outbox_events
				(event_id, aggregate_type, aggregate_id, event_type, topic, payload, headers)
				SELECT gen_random_uuid()::text, 'Order', 'ORD-' || (g % $3), 'OrderCreated', $4, convert_to($5, 'UTF8'), '{"source":"bench"}'
				FROM generate_series($1::int, $2::int - 1) g`, from, min(from+chunk, n), keys, topic, body)
		} else {
			_, err = to.ExecContext(ctx, `INSERT INTO outbox_events
				(event_id, aggregate_type, aggregate_id, event_type, topic, payload, headers)
				WITH RECURSIVE g (n) AS (SELECT ? UNION ALL SELECT n + 1 FROM g WHERE n < ?)
				SELECT UUID(), 'Order', CONCAT('ORD-', n % ?), 'OrderCreated', ?, ?, '{"source":"bench"}' FROM g`,
				from, min(from+chunk, n)-1, keys, topic, body)
		}
		if err != nil {
			return fmt.Errorf("fill: %w", err)
		}
	}
	return nil
}

// vacuum leaves nothing for autovacuum to do while something is measured.
func (b *bed) vacuum(ctx context.Context) error {
	if b.dialect != outbox.Postgres {
		return nil
	}
	_, err := b.db.ExecContext(ctx, "VACUUM ANALYZE outbox_events")
	return err
}

// drained returns when the table's n events are marked. The newest are looked at until they are, then all are counted.
func (b *bed) drained(ctx context.Context, n int) (at time.Time, err error) {
	const newest = "SELECT count(*) FROM (SELECT status FROM outbox_events ORDER BY id DESC LIMIT %d) t WHERE status <> 'SENT'"
	for _, look := range []int{1, 20_000} {
		for left := 1; left > 0; {
			if err := b.db.QueryRowContext(ctx, fmt.Sprintf(newest, look)).Scan(&left); err != nil {
				return at, err
			}
			at = time.Now()
			time.Sleep(5 * time.Millisecond)
		}
	}
	for {
		marked, err := b.sent(ctx)
		if err != nil || marked == n {
			return at, err
		}
		at = time.Now()
		time.Sleep(5 * time.Millisecond)
	}
}

// sent counts marked rows.
func (b *bed) sent(ctx context.Context) (int, error) {
	var n int
	err := b.db.QueryRowContext(ctx, "SELECT count(*) FROM outbox_events WHERE status = 'SENT'").Scan(&n)
	return n, err
}
