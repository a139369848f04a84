package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	driver "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/postrider/postrider/relay"
)

var (
	_ relay.LaneStore = (*Store)(nil)
	_ relay.Admin     = (*Store)(nil)
)

// Store is the outbox of one SQLite file. Its methods may be called from several goroutines.
type Store struct {
	loc          location
	relay        string
	timeout      time.Duration // a statement's
	claimTimeout time.Duration
	options      relay.StoreOptions
	table        atomic.Pointer[layout]
	lanes        atomic.Pointer[[]int32] // that are its own
	read         *sql.DB                 // snapshots; blocks nobody
	write        *sql.DB                 // one connection, IMMEDIATE transactions

	// Only Fetch uses these, and there is one Fetch at a time.
	floor floor
	cut   int64 // the row that the last Fetch left out for its size

	mu     sync.Mutex
	owner  *sql.DB // holds the owner's lock; nil without
	parked map[int64]parked
}

// Open opens the file and checks the table. It makes no file and no table; it switches the file to
// write-ahead logging. Problems that a person must solve are *relay.SetupError.
func Open(ctx context.Context, o relay.StoreOptions) (*Store, error) {
	loc, err := parseURL(o.URL)
	if err != nil {
		return nil, err
	}
	s := &Store{
		loc: loc, relay: o.Relay, options: o, parked: map[int64]parked{},
		timeout: o.StatementTimeout, claimTimeout: o.ClaimTimeout,
	}
	if s.timeout <= 0 {
		s.timeout = 30 * time.Second
	}
	if s.claimTimeout <= 0 {
		s.claimTimeout = 60 * time.Second
	}
	s.claimTimeout = max(s.claimTimeout, time.Second)
	if o.Claim == "" {
		s.options.Claim = relay.ClaimSingle
	}
	if o.Claim == relay.ClaimLanes && o.Lanes < 1 {
		return nil, usage("relay.lanes", fmt.Sprintf("%d is below 1", o.Lanes), "set it to the number of partitions of the control topic")
	}
	s.lanes.Store(&[]int32{})
	ctx, cancel := s.bound(ctx)
	defer cancel()
	if err := s.open(ctx); err != nil {
		_ = s.Close()
		return nil, s.setup(err)
	}
	return s, nil
}

func (s *Store) open(ctx context.Context) error {
	if _, err := os.Stat(s.loc.path); err != nil {
		return err
	}
	var err error
	if s.write, err = sql.Open(laneDriver(), s.loc.dsn(s.loc.path, "rw", s.loc.busyTimeout)); err != nil {
		return err
	}
	s.write.SetMaxOpenConns(1)
	if s.read, err = sql.Open(laneDriver(), s.loc.dsn(s.loc.path, "rw", s.loc.busyTimeout)+"&_query_only=true"); err != nil {
		return err
	}
	s.read.SetMaxOpenConns(4)
	s.read.SetMaxIdleConns(2)
	mode, err := s.switchToWAL(ctx)
	if err != nil {
		return fmt.Errorf("switch to write-ahead logging: %w", err)
	}
	if err := s.look(ctx); err != nil {
		return err
	}
	if mode != "wal" {
		l := s.layout()
		l.notices = append(l.notices, "the file stays in journal mode "+mode+": readers and writers block each other")
	}
	return s.tryWrite(ctx)
}

// look checks the table as it is now.
func (s *Store) look(ctx context.Context) error {
	l, err := newLayout(ctx, s.read, s.options)
	if err != nil {
		return err
	}
	s.table.Store(l)
	return nil
}

func (s *Store) layout() *layout { return s.table.Load() }

// switchToWAL needs the file for itself for a moment, for which SQLite does not wait by itself.
func (s *Store) switchToWAL(ctx context.Context) (mode string, err error) {
	for began := time.Now(); ; {
		err = s.write.QueryRowContext(ctx, "PRAGMA journal_mode = WAL").Scan(&mode)
		if !isBusyErr(err) || time.Since(began) > s.loc.busyTimeout {
			return mode, err
		}
		if sleep(ctx, 5*time.Millisecond) != nil {
			return mode, err
		}
	}
}

// tryWrite starts a transaction and gives it up, so that a file that cannot be written is found now.
func (s *Store) tryWrite(ctx context.Context) error {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	_, err = tx.ExecContext(ctx, fmt.Sprintf("UPDATE %[1]s SET %[2]s = %[2]s WHERE rowid = -1", s.layout().table,
		col(s.layout().cols.Payload)))
	return err
}

// Notices are facts about this table that its operator should know; logged at start.
func (s *Store) Notices() []string { return s.layout().notices }

// Close releases the ownership and closes the file. It may be called twice.
func (s *Store) Close() error {
	s.mu.Lock()
	owner := s.owner
	s.owner = nil
	s.mu.Unlock()
	var errs []error
	for _, db := range []*sql.DB{owner, s.read, s.write} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	return errors.Join(errs...)
}

// bound gives a statement its limit of time.
func (s *Store) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.timeout)
}

// rowid reads what this store gave out as a RowID.
func rowid(id relay.RowID) (int64, error) {
	n, err := strconv.ParseInt(string(id), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("row %q is not one of this table", string(id))
	}
	return n, nil
}

func rowID(n int64) relay.RowID { return relay.RowID(strconv.FormatInt(n, 10)) }

// setup turns what SQLite says while opening into an error that names the next step.
func (s *Store) setup(err error) error {
	if relay.AsSetup(err) != nil {
		return err
	}
	e := &relay.SetupError{Thing: fmt.Sprintf("file %q", s.loc.path), Err: err}
	var code int
	var se *driver.Error
	if errors.As(err, &se) {
		code = se.Code() & 0xff
	}
	switch {
	case errors.Is(err, os.ErrNotExist):
		e.Kind, e.Reason, e.Fix = relay.SetupNotFound, "does not exist", "start the service first, or run postrider schema apply"
		if _, dirErr := os.Stat(filepath.Dir(s.loc.path)); errors.Is(dirErr, os.ErrNotExist) {
			e.Reason, e.Fix = "its directory does not exist", "correct database.url"
		}
	case errors.Is(err, os.ErrPermission), code == lib.SQLITE_PERM, code == lib.SQLITE_AUTH:
		e.Kind, e.Reason, e.Fix = relay.SetupPermission, "cannot be opened", "give the relay's user the right to read and write it and its directory"
	case code == lib.SQLITE_READONLY, code == lib.SQLITE_CANTOPEN:
		e.Kind, e.Reason = relay.SetupPermission, "cannot be written"
		e.Fix = "give the relay's user the right to write the file and its directory (the log stands beside the file)"
	case code == lib.SQLITE_NOTADB:
		e.Kind, e.Reason, e.Fix = relay.SetupUsage, "is not a SQLite database", "correct database.url"
	case code == lib.SQLITE_CORRUPT:
		e.Kind, e.Reason, e.Fix = relay.SetupUsage, "is damaged", "run PRAGMA integrity_check, restore it from a backup"
	case code == lib.SQLITE_BUSY, code == lib.SQLITE_LOCKED:
		e.Kind, e.Reason = relay.SetupConflict, "is locked by another process"
		e.Fix = "wait for it to end its transaction, or raise busy_timeout in database.url"
	default:
		return fmt.Errorf("open %s: %w", s.loc.path, err)
	}
	return e
}
