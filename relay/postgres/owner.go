package postgres

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// Times of the ownership. A dead owner's session ends on the server within about keepalive + retryEvery.
const (
	pingEvery   = time.Second      // the owner's look at its session
	pingTimeout = 10 * time.Second // an answer later than that is none
)

// owner holds the session whose advisory lock keeps away those beside whom this relay may not work.
type owner struct {
	away atomic.Bool // the session has ended, and the lock is being taken anew

	mu   sync.Mutex
	stop context.CancelFunc // nil: nothing is held
	done chan struct{}
	look chan struct{} // buffered 1: the session is to be looked at now
}

// errAway is why nothing is read for a moment: until the table is ours again, others may have taken it.
var errAway = errors.New("the session that keeps relays of another claim mode away from the table has ended, it is being taken anew")

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

// hold watches the session until it is released. When it ends, the lock is taken anew by again; where there is no
// again, or others came first, the ownership is lost.
func (o *owner) hold(conn *pgx.Conn, again func(context.Context) (*pgx.Conn, bool, error)) <-chan struct{} {
	lost := make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	o.mu.Lock()
	o.stop, o.done, o.look = cancel, make(chan struct{}), make(chan struct{}, 1)
	done, look := o.done, o.look
	o.mu.Unlock()
	go func() {
		defer close(done)
		for conn != nil {
			watch(ctx, conn, look)
			closing, cancel := context.WithTimeout(context.Background(), pingTimeout)
			_ = conn.Close(closing)
			cancel()
			if conn = nil; again != nil {
				o.away.Store(true)
				conn = retake(ctx, again)
				o.away.Store(conn == nil)
			}
		}
		if ctx.Err() == nil {
			close(lost)
		}
	}()
	return lost
}

// watch returns when the session or ctx has ended.
func watch(ctx context.Context, conn *pgx.Conn, look <-chan struct{}) {
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
		if err != nil {
			return
		}
	}
}

// retake tries until it has the lock; nil when others have it or ctx ends.
func retake(ctx context.Context, again func(context.Context) (*pgx.Conn, bool, error)) *pgx.Conn {
	tick := time.NewTicker(retryEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		conn, got, err := again(ctx)
		switch {
		case err == nil && got:
			return conn
		case err == nil:
			return nil
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	return nil
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
