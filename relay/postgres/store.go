package postgres

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/relay"
)

var (
	_ relay.LaneStore = (*Store)(nil)
	_ relay.Admin     = (*Store)(nil)
)

// Store is an outbox table on PostgreSQL.
type Store struct {
	options relay.StoreOptions
	config  *pgx.ConnConfig
	db      *db
	layout  *layout
	reader  *reader
	marks   markTexts
	engine  *engine
	keeper  *keeper
	owner   owner

	settling sync.Mutex
	unsure   map[relay.RowID]struct{} // rows of a Settle that failed: it may have been written

	started   sync.Mutex
	beginning bool // the cursor is placed

	clock  clock
	closed sync.Once
}

// withDefaults fills in what StoreOptions promises.
func withDefaults(o relay.StoreOptions) relay.StoreOptions {
	if o.Claim == "" {
		o.Claim = relay.ClaimSingle
	}
	if o.OnDead == "" {
		o.OnDead = relay.OnDeadHold
	}
	if o.ClaimTimeout == 0 {
		o.ClaimTimeout = 60 * time.Second
	}
	o.ClaimTimeout = max(o.ClaimTimeout, time.Second)
	if o.StatementTimeout <= 0 {
		o.StatementTimeout = 30 * time.Second
	}
	if o.Name == "" {
		o.Name = "outbox"
	}
	return o
}

// Open connects, checks the table and everything else that can be seen before the first event, and
// returns a store that reads nothing yet. Problems that a person must solve are *relay.SetupError; one
// of kind relay.SetupUnreachable may pass by waiting.
func Open(ctx context.Context, o relay.StoreOptions) (*Store, error) {
	o = withDefaults(o)
	if o.Claim == relay.ClaimLanes && o.Lanes < 1 {
		return nil, &relay.SetupError{Kind: relay.SetupUsage, Thing: "relay.lanes", Reason: fmt.Sprintf("%d is below 1", o.Lanes),
			Fix: "set it to the number of partitions of the control topic"}
	}
	config, err := connConfig(o)
	if err != nil {
		return nil, err
	}
	conn, pooled, err := probe(ctx, config, o)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if pooled && o.Claim == relay.ClaimSingle && !o.ReadOnly {
		return nil, &relay.SetupError{Kind: relay.SetupUsage, Thing: "database.url",
			Reason: "the connection goes through a pooler, where the lock that makes this relay the only one of its table does not hold",
			Fix:    "give a direct connection to PostgreSQL, or set relay.claim: lanes"}
	}
	l, err := newLayout(ctx, conn, o)
	if err != nil {
		return nil, err
	}
	own := &pids{}
	pool, err := newPool(ctx, config, o, pooled, own)
	if err != nil {
		return nil, err
	}
	s := &Store{
		options: o, config: config, layout: l, marks: newMarkTexts(l), unsure: map[relay.RowID]struct{}{},
		db: &db{pool: pool, pooled: pooled, settings: settings(o)},
	}
	s.reader = newReader(s.db, l, own, &s.clock)
	s.engine = &engine{
		rows: s.reader, claims: o.Claim == relay.ClaimRows, gapless: l.gapless,
		delays: !l.own, bounds: usualBounds, tracker: newTracker(0),
	}
	if o.Claim == relay.ClaimLanes {
		s.engine.lanes = newLaneSet(o.Lanes, nil)
	}
	s.keeper = newKeeper(s)
	if pooled && !o.ReadOnly {
		s.keeper.warnings = append(s.keeper.warnings, "the connection goes through a pooler, where no lock keeps relays of another relay.claim or outbox.name "+
			"away from this table: stop all relays before either is changed, or give a direct connection to PostgreSQL")
	}
	if err := s.keeper.noteRights(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("open the table: %w", err)
	}
	return s, nil
}

// Notices are facts that a person should know of, to be logged once at the start: which way of reading was
// chosen, columns left out, what a column's type does to payloads.
func (s *Store) Notices() []string {
	out := slices.Clone(s.layout.notices)
	if s.db.pooled {
		out = append(out, "the connection goes through a pooler: statements are not prepared, and each transaction brings its own settings")
	}
	return out
}

// Warnings are facts that a person should change, to be logged once at the start.
func (s *Store) Warnings() []string { return s.keeper.warnings }

// SweepFound counts new rows below the cursor that only the slow sweep found. Rows that a person makes new by
// SQL are among them; otherwise it stays 0, and anything else is a bug.
func (s *Store) SweepFound() int64 { return s.engine.sweepFound() }

// Fetch implements relay.Store.
func (s *Store) Fetch(ctx context.Context, f relay.Fetch) (relay.Fetched, error) {
	if f.Limit < 1 {
		return relay.Fetched{}, fmt.Errorf("fetch: limit %d is below 1", f.Limit)
	}
	if s.engine.owned().none() {
		return relay.Fetched{}, nil
	}
	if s.owner.away.Load() {
		return relay.Fetched{}, fmt.Errorf("fetch: %w", errAway)
	}
	if err := s.begin(ctx); err != nil {
		return relay.Fetched{}, err
	}
	got, err := s.engine.fetch(ctx, f, s.databaseNow())
	if err != nil {
		s.owner.suspect()
	}
	return got, err
}

// begin places the cursor before the first read.
func (s *Store) begin(ctx context.Context) error {
	s.started.Lock()
	defer s.started.Unlock()
	if s.beginning || s.options.Claim == relay.ClaimLanes { // there Own places it
		return nil
	}
	cursor, early, err := s.keeper.start(ctx)
	if err != nil {
		return err
	}
	s.engine.reset(cursor, early)
	s.keeper.run()
	s.beginning = true
	return nil
}

// databaseNow guesses the server's clock between two reads of it. It only decides when to look; what is due
// is decided by the server.
func (s *Store) databaseNow() time.Time { return s.clock.now() }

// Close implements relay.Store. It may be called twice.
func (s *Store) Close() error {
	s.closed.Do(func() {
		s.keeper.stop()
		s.owner.release()
		s.db.pool.Close()
	})
	return nil
}

// clock follows the server's.
type clock struct {
	mu     sync.Mutex
	offset time.Duration
}

func (c *clock) set(server time.Time) {
	if server.IsZero() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset = time.Until(server)
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.offset).UTC()
}
