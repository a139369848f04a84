package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// ownerPing is how often the owner asks whether the lock is still its own; a session that is silent
	// for ownerSilence is ended by the server, which gives the lock back.
	ownerPing    = 2 * time.Second
	ownerTimeout = 5 * time.Second
	ownerSilence = 20 * time.Second
)

// retryEvery is how often a relay that waits looks at the table's locks.
const retryEvery = time.Second

// owner is the session that holds the table's locks.
type owner struct {
	stop context.CancelFunc
	gone sync.WaitGroup
	look chan struct{} // buffered 1: the session is to be looked at now
	away atomic.Bool   // the session has ended, and the locks are being taken anew
}

// errAway is why nothing is read for a moment: until the table is ours again, others may have taken it.
var errAway = errors.New("the session that keeps relays of another claim mode away from the table has ended, it is being taken anew")

// suspect has the owner's session looked at at once: what broke another of this relay's connections may have ended
// that one, and until that is known two relays may be at work.
func (s *Store) suspect() {
	o := s.owned()
	if o == nil {
		return
	}
	select {
	case o.look <- struct{}{}:
	default: // it is being looked at
	}
}

func (s *Store) owned() *owner {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.owner
}

func (o *owner) close() {
	o.stop()
	o.gone.Wait()
}

// Acquire implements relay.Store with named locks of the server, in a session of its own: they die with it.
func (s *Store) Acquire(ctx context.Context, standby func(holder string)) (<-chan struct{}, error) {
	held, err := s.acquire(ctx, standby)
	if err != nil {
		return nil, fmt.Errorf("lock the table: %w", err)
	}
	lost := make(chan struct{})
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	o := &owner{stop: stop, look: make(chan struct{}, 1)}
	o.gone.Go(func() {
		if s.keep(watching, o, held) {
			close(lost)
		}
	})
	s.mu.Lock()
	old := s.owner
	s.owner = o
	s.mu.Unlock()
	if old != nil {
		old.close()
	}
	return lost, nil
}

// lockSession is a session with locks.
type lockSession struct {
	db   *sql.DB
	conn *sql.Conn
	name string // a lock that it holds
}

func (l *lockSession) close() {
	_ = l.conn.Close()
	_ = l.db.Close() // ending the session gives the locks back
}

func (s *Store) lockSession(ctx context.Context) (*lockSession, error) {
	config := s.config.Clone()
	config.Params["wait_timeout"] = fmt.Sprint(int(ownerSilence.Seconds()))
	config.ReadTimeout, config.WriteTimeout = ownerTimeout+time.Second, ownerTimeout
	db, err := open(config)
	if err != nil {
		return nil, err
	}
	db.SetConnMaxLifetime(0)
	conn, err := db.Conn(ctx)
	if err != nil {
		_ = db.Close()
		return nil, err
	}
	return &lockSession{db: db, conn: conn}, nil
}

// acquire waits for the locks. It asks each second rather than waiting in the server, so that ctx is heard.
func (s *Store) acquire(ctx context.Context, standby func(holder string)) (*lockSession, error) {
	held, err := s.lockSession(ctx)
	if err != nil {
		return nil, err
	}
	l := s.tableLock()
	tick := time.NewTicker(retryEvery)
	defer tick.Stop()
	for told := false; ; {
		name, other, err := l.try(ctx, held.conn)
		if err == nil && other == nil {
			held.name = name
			return held, nil
		}
		if err == nil && other.session != 0 && !told && standby != nil {
			told = true
			standby(l.describe(ctx, held.conn, other))
		}
		if err == nil {
			select {
			case <-tick.C:
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
		if err != nil {
			held.close()
			return nil, err
		}
	}
}

// keep watches the session until ctx ends. When it ends otherwise, the ownership is lost: somebody who was waiting
// may have had the table meanwhile and done anything. Only where relays share a table the locks are taken anew, and
// the ownership is lost if others came first: what keeps these relays from one another's work is not the locks.
func (s *Store) keep(ctx context.Context, o *owner, held *lockSession) (lost bool) {
	for {
		o.watch(ctx, held)
		held.close()
		switch {
		case ctx.Err() != nil:
			return false
		case s.options.Peers() == "":
			return true
		}
		o.away.Store(true)
		if held = s.retake(ctx); held == nil {
			return ctx.Err() == nil
		}
		o.away.Store(false)
	}
}

// retake tries until it has the locks; nil when others have the table or ctx ends.
func (s *Store) retake(ctx context.Context) *lockSession {
	tick := time.NewTicker(retryEvery)
	defer tick.Stop()
	l := s.tableLock()
	for ctx.Err() == nil {
		held, err := s.lockSession(ctx)
		if err == nil {
			var other *user
			held.name, other, err = l.try(ctx, held.conn)
			if err == nil && other == nil {
				return held
			}
			held.close()
			if err == nil && other.session != 0 { // else another relay is looking, too
				return nil
			}
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	return nil
}

// watch asks now and then whether the session holds its lock, until it does not or ctx ends.
func (o *owner) watch(ctx context.Context, held *lockSession) {
	tick := time.NewTicker(ownerPing)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-o.look:
		}
		asking, cancel := context.WithTimeout(ctx, ownerTimeout)
		var mine sql.NullBool
		err := held.conn.QueryRowContext(asking, "SELECT IS_USED_LOCK(?) = CONNECTION_ID()", held.name).Scan(&mine)
		cancel()
		if err != nil || !mine.Bool {
			return
		}
	}
}
