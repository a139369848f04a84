package sqlite

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	driver "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/postrider/postrider/relay"
)

// standbyEvery is how often a waiting relay tries again.
const standbyEvery = 250 * time.Millisecond

// Acquire implements relay.Store with a lock on a small database beside the file, which the operating system gives
// back however the process ends. The ownership cannot be lost while the process lives: lost is never closed.
//
// Relays at work read that database and do not end reading. What it holds, the kind of relays that they are, can
// then not be changed; a newcomer of the same kind reads with them, any other waits until its change goes through.
func (s *Store) Acquire(ctx context.Context, standby func(holder string)) (<-chan struct{}, error) {
	db, err := sql.Open(laneDriver(), s.loc.dsn(s.lockPath(), "rwc", 0))
	if err != nil {
		return nil, fmt.Errorf("lock the table: %w", err)
	}
	db.SetMaxOpenConns(1)
	kind := s.peers()
	for told := false; ; {
		other, err := s.tryLock(ctx, db, kind)
		if err == nil && other == "" {
			break
		}
		if err != nil && !isBusyErr(err) {
			_ = db.Close()
			return nil, fmt.Errorf("lock the table: %w", err)
		}
		if err == nil && !told && standby != nil {
			told = true
			standby(other)
		}
		if err := sleep(ctx, standbyEvery); err != nil {
			_ = db.Close()
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owner != nil {
		_ = s.owner.Close()
	}
	s.owner = db
	return make(chan struct{}), nil
}

// peers is what relays have in common that may work beside one another; a relay that may not has its own.
func (s *Store) peers() string {
	if peers := s.options.Peers(); peers != "" {
		return peers
	}
	return "single " + rand.Text()
}

// tryLock reads with the relays that are at work if they are of the kind, or makes it the kind if nobody is at work;
// else it says who is. Busy errors mean that another relay is trying at this moment.
func (s *Store) tryLock(ctx context.Context, db *sql.DB, kind string) (other string, err error) {
	run := func(stmt string) {
		if err == nil {
			_, err = db.ExecContext(ctx, stmt)
		}
	}
	defer func() {
		if err != nil || other != "" {
			_, _ = db.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
		}
	}()
	run("BEGIN IMMEDIATE")
	run("CREATE TABLE IF NOT EXISTS holder (kind TEXT, name TEXT)")
	if err != nil {
		return "", err
	}
	now, name, err := holder(ctx, db)
	if err != nil {
		return "", err
	}
	end := "ROLLBACK"
	if now != kind {
		end = "COMMIT"
		me := fmt.Sprintf("%s (process %d), claim: %s", s.relay, os.Getpid(), s.options.Claim)
		if s.options.Peers() != "" {
			me += ", or one that came after it"
		}
		run("DELETE FROM holder")
		run(fmt.Sprintf("INSERT INTO holder VALUES (%s, %s)", lit(kind), lit(me)))
	}
	if run(end); isBusyErr(err) { // relays of another kind read
		if s.options.Claim == relay.ClaimLanes && strings.HasPrefix(now, "lanes") {
			name += ", " + s.options.Unlike()
		}
		return name, nil
	}
	run("BEGIN")
	if err != nil {
		return "", err
	}
	if now, name, err = holder(ctx, db); err == nil && now != kind { // another relay was faster
		other = name
	}
	return other, err
}

// holder reads who made the kind of relays what it is; nothing when nobody has.
func holder(ctx context.Context, db *sql.DB) (kind, name string, err error) {
	err = db.QueryRowContext(ctx, "SELECT kind, name FROM holder").Scan(&kind, &name)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return kind, name, err
}

// lockPath is one file a table.
func (s *Store) lockPath() string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '_' || r == '.' {
			return r
		}
		return '-'
	}, strings.ToLower(s.layout().catalog.name))
	return s.loc.path + "-" + name + ".relay"
}

func isBusyErr(err error) bool {
	var se *driver.Error
	return errors.As(err, &se) && (se.Code()&0xff == lib.SQLITE_BUSY || se.Code()&0xff == lib.SQLITE_LOCKED)
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
