package postgres

import (
	"context"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/relay"
)

// Times of the ownership. A dead owner's session ends on the server within about keepalive + retryEvery.
const (
	retryEvery  = time.Second      // a standby's look at the lock
	pingEvery   = time.Second      // the owner's look at its session
	pingTimeout = 10 * time.Second // an answer later than that is none
)

// owner holds the session whose advisory lock makes this relay the only one.
type owner struct {
	mu   sync.Mutex
	stop context.CancelFunc // nil: nothing is held
	done chan struct{}
	look chan struct{} // buffered 1: the session is to be looked at now
}

// suspect has the session looked at at once: what broke another of this relay's connections may have ended this
// one, and until that is known two relays may be at work.
func (o *owner) suspect() {
	o.mu.Lock()
	look := o.look
	o.mu.Unlock()
	select {
	case look <- struct{}{}:
	default: // nothing is held, or it is being looked at
	}
}

// lockKey names the lock: one for each outbox name on each table of the database.
func (s *Store) lockKey() int64 {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "postrider\x00%d\x00%s", s.layout.catalog.oid, s.options.Name)
	return int64(h.Sum64())
}

// Acquire implements relay.Store. The lock belongs to a session of its own; a waiting relay asks each second
// rather than waiting in the server, where the wait would keep a snapshot open and vacuum away.
func (s *Store) Acquire(ctx context.Context, standby func(holder string)) (<-chan struct{}, error) {
	if s.options.Claim != relay.ClaimSingle {
		return make(chan struct{}), nil
	}
	conn, err := s.lockSession(ctx)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(retryEvery)
	defer tick.Stop()
	for told := false; ; {
		var got bool
		err := conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", s.lockKey()).Scan(&got)
		if err == nil && got {
			return s.owner.hold(conn), nil
		}
		if err == nil && !told {
			told = true
			standby(s.holder(ctx, conn))
		}
		if err != nil && ctx.Err() == nil { // the session ended while waiting
			_ = conn.Close(ctx)
			return nil, fmt.Errorf("wait for the table: %w", err)
		}
		select {
		case <-ctx.Done():
			_ = conn.Close(context.WithoutCancel(ctx))
			return nil, fmt.Errorf("wait for the table: %w", ctx.Err())
		case <-tick.C:
		}
	}
}

// lockSession connects for the lock. The server notices within seconds when this relay's machine is gone.
func (s *Store) lockSession(ctx context.Context) (*pgx.Conn, error) {
	config := s.config.Copy()
	for name, value := range map[string]string{
		"tcp_keepalives_idle": "3", "tcp_keepalives_interval": "2", "tcp_keepalives_count": "3",
		"tcp_user_timeout": "9000", "statement_timeout": "10000", "idle_session_timeout": "0",
	} {
		config.RuntimeParams[name] = value
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, connectError(config, err)
	}
	return conn, nil
}

// holder says who has the lock, for people.
func (s *Store) holder(ctx context.Context, conn *pgx.Conn) string {
	key := uint64(s.lockKey())
	var text string
	err := conn.QueryRow(ctx, `SELECT coalesce(nullif(a.application_name, ''), 'a session') || ', server process ' || l.pid
			|| coalesce(', since ' || to_char(a.backend_start AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS') || ' UTC', '')
		FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
		WHERE l.locktype = 'advisory' AND l.granted AND l.classid = $1 AND l.objid = $2 AND l.objsubid = 1
			AND l.database = $3`, uint32(key>>32), uint32(key), s.layout.catalog.database).Scan(&text)
	if err != nil {
		return "another relay"
	}
	return text
}

// hold watches the session until it ends or is released.
func (o *owner) hold(conn *pgx.Conn) <-chan struct{} {
	lost := make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	o.mu.Lock()
	o.stop, o.done, o.look = cancel, make(chan struct{}), make(chan struct{}, 1)
	done, look := o.done, o.look
	o.mu.Unlock()
	go func() {
		defer close(done)
		defer func() {
			closing, cancel := context.WithTimeout(context.Background(), pingTimeout)
			defer cancel()
			_ = conn.Close(closing)
		}()
		tick := time.NewTicker(pingEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			case <-look:
			}
			ping, cancel := context.WithTimeout(ctx, pingTimeout)
			err := conn.Ping(ping)
			cancel()
			if err != nil && ctx.Err() == nil {
				close(lost)
				return
			}
		}
	}()
	return lost
}

// release ends the session; the lock goes with it.
func (o *owner) release() {
	o.mu.Lock()
	stop, done := o.stop, o.done
	o.stop = nil
	o.mu.Unlock()
	if stop != nil {
		stop()
		<-done
	}
}
