package mysql

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/postrider/postrider/relay"
)

const (
	// ownerPing is how often the owner asks whether the lock is still its own; a session that is silent
	// for ownerSilence is ended by the server, which gives the lock back.
	ownerPing    = 2 * time.Second
	ownerTimeout = 5 * time.Second
	ownerSilence = 20 * time.Second
)

// owner is the session that holds the owner's lock.
type owner struct {
	db   *sql.DB
	conn *sql.Conn
	stop context.CancelFunc
	gone sync.WaitGroup
	look chan struct{} // buffered 1: the session is to be looked at now
}

// suspect has the owner's session looked at at once: what broke another of this relay's connections may have ended
// that one, and until that is known two relays may be at work.
func (s *Store) suspect() {
	s.mu.Lock()
	o := s.owner
	s.mu.Unlock()
	if o == nil {
		return
	}
	select {
	case o.look <- struct{}{}:
	default: // it is being looked at
	}
}

func (o *owner) close() error {
	o.stop()
	o.gone.Wait()
	return errors.Join(o.conn.Close(), o.db.Close()) // ending the session gives the lock back
}

// Acquire takes a named lock of the server, one an outbox and table, in a session of its own. It dies
// with the session; lost is closed when the server no longer says that this session holds it.
func (s *Store) Acquire(ctx context.Context, standby func(holder string)) (<-chan struct{}, error) {
	lost := make(chan struct{})
	if s.layout().claim != relay.ClaimSingle {
		return lost, nil
	}
	config := s.config.Clone()
	config.Params["wait_timeout"] = fmt.Sprint(int(ownerSilence.Seconds()))
	config.ReadTimeout, config.WriteTimeout = ownerTimeout, ownerTimeout
	db, err := open(config)
	if err != nil {
		return nil, err
	}
	db.SetConnMaxLifetime(0)
	conn, err := db.Conn(ctx)
	if err == nil {
		err = s.lock(ctx, conn, standby)
	}
	if err != nil {
		if conn != nil {
			_ = conn.Close()
		}
		_ = db.Close()
		return nil, fmt.Errorf("lock the table: %w", err)
	}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	o := &owner{db: db, conn: conn, stop: stop, look: make(chan struct{}, 1)}
	o.gone.Go(func() { o.watch(watching, s.lockName(), lost) })
	s.mu.Lock()
	old := s.owner
	s.owner = o
	s.mu.Unlock()
	if old != nil {
		_ = old.close()
	}
	return lost, nil
}

// lock waits a second at a time, so that ctx is heard.
func (s *Store) lock(ctx context.Context, conn *sql.Conn, standby func(holder string)) error {
	for told := false; ; told = true {
		var got sql.NullInt64
		wait := 1
		if !told {
			wait = 0
		}
		if err := conn.QueryRowContext(ctx, "SELECT GET_LOCK(?, ?)", s.lockName(), wait).Scan(&got); err != nil {
			return err
		}
		if got.Int64 == 1 {
			return nil
		}
		if !told && standby != nil {
			standby(s.holder(ctx, conn))
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// lockName fits the 64 characters that a lock's name may have; names are one space for the server.
func (s *Store) lockName() string {
	c := &s.layout().catalog
	sum := sha256.Sum256([]byte(strings.ToLower(c.schema) + "\x00" + strings.ToLower(c.name) + "\x00" + s.name))
	return fmt.Sprintf("postrider-%x", sum[:20])
}

// holder says who holds the lock, as far as this user may see.
func (s *Store) holder(ctx context.Context, conn *sql.Conn) string {
	var id sql.NullInt64
	if err := conn.QueryRowContext(ctx, "SELECT IS_USED_LOCK(?)", s.lockName()).Scan(&id); err != nil || !id.Valid {
		return "another relay"
	}
	who := fmt.Sprintf("connection %d", id.Int64)
	var host, name string
	if conn.QueryRowContext(ctx, "SELECT host FROM information_schema.processlist WHERE id = ?",
		id.Int64).Scan(&host) == nil {
		who += " from " + host
	}
	if conn.QueryRowContext(ctx, `SELECT attr_value FROM performance_schema.session_account_connect_attrs
WHERE processlist_id = ? AND attr_name = 'program_name'`, id.Int64).Scan(&name) == nil {
		who = strings.TrimPrefix(name, "postrider ") + ", " + who
	}
	return who
}

// watch asks now and then whether this session holds the lock, until ctx ends.
func (o *owner) watch(ctx context.Context, name string, lost chan<- struct{}) {
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
		err := o.conn.QueryRowContext(asking, "SELECT IS_USED_LOCK(?) = CONNECTION_ID()", name).Scan(&mine)
		cancel()
		if ctx.Err() != nil {
			return
		}
		if err != nil || !mine.Bool {
			close(lost)
			return
		}
	}
}
