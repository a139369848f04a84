package sqlite

import (
	"context"
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

// Acquire takes the owner's lock of the table: the write lock of a small database beside the file,
// which the operating system gives back however the process ends. The ownership cannot be lost while
// the process lives: lost is never closed.
func (s *Store) Acquire(ctx context.Context, standby func(holder string)) (<-chan struct{}, error) {
	lost := make(chan struct{})
	if s.layout().claim != relay.ClaimSingle {
		return lost, nil
	}
	db, err := sql.Open(laneDriver(), s.loc.dsn(s.lockPath(), "rwc", 0))
	if err != nil {
		return nil, fmt.Errorf("lock the table: %w", err)
	}
	db.SetMaxOpenConns(1)
	for told := false; ; told = true {
		err := s.tryLock(ctx, db)
		if err == nil {
			break
		}
		if !isBusyErr(err) {
			_ = db.Close()
			return nil, fmt.Errorf("lock the table: %w", err)
		}
		if !told && standby != nil {
			standby(holder(ctx, db))
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
	return lost, nil
}

// tryLock writes down who the holder is and then keeps the write lock without writing: readers may
// still ask who it is.
func (s *Store) tryLock(ctx context.Context, db *sql.DB) error {
	me := fmt.Sprintf("%s (process %d)", s.relay, os.Getpid())
	for _, stmt := range []string{
		"BEGIN IMMEDIATE",
		"CREATE TABLE IF NOT EXISTS holder (name TEXT)",
		"DELETE FROM holder",
		"INSERT INTO holder VALUES (" + lit(me) + ")",
		"COMMIT",
		"BEGIN IMMEDIATE",
	} {
		if _, err := db.ExecContext(ctx, stmt); err != nil {
			_, _ = db.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
			return err
		}
	}
	return nil
}

func holder(ctx context.Context, db *sql.DB) string {
	var name string
	if err := db.QueryRowContext(ctx, "SELECT name FROM holder").Scan(&name); err != nil {
		return "another relay"
	}
	return name
}

// lockPath is one file an outbox and table.
func (s *Store) lockPath() string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '_' || r == '.' {
			return r
		}
		return '-'
	}, strings.ToLower(s.layout().catalog.name+"."+s.name))
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
