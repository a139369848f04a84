package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/postrider/postrider/relay"
)

var (
	_ relay.LaneStore = (*Store)(nil)
	_ relay.Admin     = (*Store)(nil)
)

// Store is an outbox table on a MySQL or MariaDB server. Its methods may be called from several
// goroutines.
type Store struct {
	config       *driver.Config // of a session; holds the password, never shown
	timeout      time.Duration  // a statement's
	claimTimeout time.Duration
	server       server
	options      relay.StoreOptions
	table        atomic.Pointer[layout]
	lanes        atomic.Pointer[[]int32] // that are its own
	db           *sql.DB

	// Only Fetch uses these, and there is one Fetch at a time.
	floor floor
	bytes float64 // of an event, a moving average
	cut   cut     // what the last Fetch left out for its size
	keys  keyList

	mu     sync.Mutex
	owner  *owner // holds the owner's lock; nil without
	parked map[uint64]parked
}

// cut is a row that did not fit, how many rows that Fetch asked for to see it, and whether the next one
// asked for too few.
type cut struct {
	row    uint64
	page   int
	missed bool
}

// Open connects and checks the table. Problems that a person must solve are *relay.SetupError; one of
// kind SetupUnreachable may pass by itself.
func Open(ctx context.Context, o relay.StoreOptions) (*Store, error) {
	config, err := parseURL(o.URL)
	if err != nil {
		return nil, err
	}
	s := &Store{
		config: config, options: o, parked: map[uint64]parked{},
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
	bounded, cancel := s.bound(ctx)
	defer cancel()
	if err := s.open(bounded, s.options); err != nil {
		_ = s.Close()
		if ctx.Err() != nil { // nothing is known of the server then
			return nil, err
		}
		return nil, setup(err, config)
	}
	return s, nil
}

func (s *Store) open(ctx context.Context, o relay.StoreOptions) error {
	var err error
	if s.server, err = probe(ctx, s.config); err != nil {
		return err
	}
	s.server.configure(s.config, o, s.timeout)
	if err := s.server.zone(ctx, s.config, o.Table); err != nil {
		return err
	}
	if s.db, err = open(s.config); err != nil {
		return err
	}
	if err := s.look(ctx); err != nil {
		return err
	}
	// From here on a session that finds itself on a read-only server after a fail-over is dropped, and
	// the next one looks for the primary.
	s.config.RejectReadOnly = true
	_ = s.db.Close()
	s.db, err = open(s.config)
	return err
}

// look checks the table as it is now.
func (s *Store) look(ctx context.Context) error {
	l, err := newLayout(ctx, s.db, s.server, s.options)
	if err != nil {
		return err
	}
	s.table.Store(l)
	return nil
}

func (s *Store) layout() *layout { return s.table.Load() }

// open makes a pool. Sessions are renewed now and then, so that a moved name is noticed.
func open(config *driver.Config) (*sql.DB, error) {
	connector, err := driver.NewConnector(config)
	if err != nil {
		return nil, fmt.Errorf("configure the driver: %w", err)
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(4)
	db.SetMaxIdleConns(3)
	db.SetConnMaxLifetime(30 * time.Minute)
	db.SetConnMaxIdleTime(quietFor / 2) // before the server ends it
	return db, nil
}

// Notices are facts about this server and table that its operator should know; logged at start.
func (s *Store) Notices() []string { return s.layout().notices }

// Close releases the ownership and closes the connections. It may be called twice.
func (s *Store) Close() error {
	s.mu.Lock()
	o := s.owner
	s.owner = nil
	s.mu.Unlock()
	if o != nil {
		o.close()
	}
	if s.db == nil {
		return nil
	}
	return s.db.Close()
}

// bound gives a statement its limit of time.
func (s *Store) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.timeout)
}

// inTx runs f in a READ COMMITTED transaction, again if it was the victim of a lock.
func (s *Store) inTx(ctx context.Context, f func(*sql.Tx) error) error {
	err := again(ctx, func() error {
		tx, err := s.db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if err := f(tx); err != nil {
			return err
		}
		return tx.Commit()
	})
	if err != nil {
		s.suspect()
	}
	return err
}
