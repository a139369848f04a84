package main

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"strings"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/schema"
)

// bed is a schema (PostgreSQL) or database (MySQL, MariaDB) of its own with the product's tables.
type bed struct {
	db      *sql.DB
	url     string // as in database.url, with the bed's own schema or database
	dialect outbox.Dialect
	remove  func()
}

func newBed(ctx context.Context, raw string) (*bed, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("database URL cannot be read")
	}
	name := fmt.Sprintf("bench_%d", time.Now().UnixNano())
	b := &bed{}
	var admin *sql.DB
	if strings.HasPrefix(u.Scheme, "postgres") {
		b.dialect = outbox.Postgres
		if admin, err = sql.Open("pgx", raw); err != nil {
			return nil, err
		}
		if _, err = admin.ExecContext(ctx, `CREATE SCHEMA "`+name+`"`); err != nil {
			return nil, err
		}
		q := u.Query()
		q.Set("search_path", name)
		u.RawQuery = q.Encode()
		b.url = u.String()
		if b.db, err = sql.Open("pgx", b.url); err != nil {
			return nil, err
		}
		b.remove = func() { _, _ = admin.ExecContext(context.WithoutCancel(ctx), `DROP SCHEMA "`+name+`" CASCADE`) }
	} else {
		b.dialect = outbox.MySQL
		if u.Scheme == "mariadb" {
			b.dialect = outbox.MariaDB
		}
		if admin, err = sql.Open("mysql", mysqlDSN(u, "")); err != nil {
			return nil, err
		}
		if _, err = admin.ExecContext(ctx, "CREATE DATABASE `"+name+"`"); err != nil {
			return nil, err
		}
		if b.db, err = sql.Open("mysql", mysqlDSN(u, name)); err != nil {
			return nil, err
		}
		u.Path = "/" + name
		b.url = u.String()
		b.remove = func() { _, _ = admin.ExecContext(context.WithoutCancel(ctx), "DROP DATABASE `"+name+"`") }
	}
	if _, err := schema.Apply(ctx, b.db, b.dialect); err != nil {
		return nil, fmt.Errorf("apply schema: %w", err)
	}
	return b, nil
}

func (b *bed) close() {
	_ = b.db.Close()
	b.remove()
}

func mysqlDSN(u *url.URL, database string) string {
	pass, _ := u.User.Password()
	return fmt.Sprintf("%s:%s@tcp(%s)/%s?interpolateParams=true", u.User.Username(), pass, u.Host, database)
}

// fill writes n committed events straight into the table.
func (b *bed) fill(ctx context.Context, n, size, keys int, topic string) error {
	body := `{"note":"` + strings.Repeat("x", max(size-11, 0)) + `"}`
	chunk := 20_000
	if b.dialect != outbox.Postgres {
		chunk = 1000 // MySQL and MariaDB end a recursive query there unless told otherwise
	}
	for from := 0; from < n; from += chunk {
		to := min(from+chunk, n)
		var err error
		if b.dialect == outbox.Postgres {
			_, err = b.db.ExecContext(ctx, `INSERT INTO outbox_events
				(event_id, aggregate_type, aggregate_id, event_type, topic, payload, headers)
				SELECT gen_random_uuid()::text, 'Order', 'ORD-' || (g % $3), 'OrderCreated', $4, convert_to($5, 'UTF8'), '{"source":"bench"}'
				FROM generate_series($1::int, $2::int - 1) g`, from, to, keys, topic, body)
		} else {
			_, err = b.db.ExecContext(ctx, `INSERT INTO outbox_events
				(event_id, aggregate_type, aggregate_id, event_type, topic, payload, headers)
				WITH RECURSIVE g (n) AS (SELECT ? UNION ALL SELECT n + 1 FROM g WHERE n < ?)
				SELECT UUID(), 'Order', CONCAT('ORD-', n % ?), 'OrderCreated', ?, ?, '{"source":"bench"}' FROM g`,
				from, to-1, keys, topic, body)
		}
		if err != nil {
			return fmt.Errorf("fill: %w", err)
		}
	}
	if b.dialect == outbox.Postgres {
		_, err := b.db.ExecContext(ctx, "VACUUM ANALYZE outbox_events")
		return err
	}
	return nil
}

// sent counts marked rows.
func (b *bed) sent(ctx context.Context) (int, error) {
	var n int
	err := b.db.QueryRowContext(ctx, "SELECT count(*) FROM outbox_events WHERE status = 'SENT'").Scan(&n)
	return n, err
}
