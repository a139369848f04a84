package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

// Four services insert in their servers' default isolation while three relays claim (or share lanes), mark and retry,
// and retention deletes what was sent: no service may meet a deadlock or wait for a lock in vain.
func TestCase_C04_writers_meet_no_deadlock(t *testing.T) {
	lasting := 20 * time.Second
	if testing.Short() {
		lasting = 3 * time.Second
	}
	onBoth(t, func(t *testing.T, v flavour) {
		for _, k := range kinds(v) {
			if k.name != "own" && k.name != "article-mysql" && k.name != "article-postgres" {
				continue
			}
			t.Run(k.name, func(t *testing.T) {
				if k.name == "own" {
					c04(t, v, k, relay.ClaimRows, lasting)
				} else {
					c04(t, v, k, relay.ClaimRows, lasting/4)
				}
			})
			t.Run(k.name+"/lanes", func(t *testing.T) { c04(t, v, k, relay.ClaimLanes, lasting/4) })
		}
	})
}

func c04(t *testing.T, v flavour, k kind, claim relay.ClaimMode, lasting time.Duration) {
	p := &tables{t: t, flavour: v, kind: k}
	f := p.make(t)
	f.t = t
	ctx, cancel := context.WithTimeout(t.Context(), lasting)
	defer cancel()
	var wg sync.WaitGroup
	var written, sent, victims, others atomic.Int64
	blame := func(err error) {
		var e *driver.MySQLError
		switch {
		case err == nil || ctx.Err() != nil:
		case errors.As(err, &e) && (e.Number == errDeadlock || e.Number == errLockWait):
			victims.Add(1)
			t.Errorf("a service met %v", err)
		default:
			others.Add(1)
			t.Errorf("a service met %v", err)
		}
	}
	for w := range 4 {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				tx, err := f.db.BeginTx(context.Background(), nil)
				blame(err)
				if err != nil {
					continue
				}
				for i := range 10 {
					_, err = tx.ExecContext(context.Background(), insertOne(f.l), fmt.Sprintf("w%d-%06d-%d", w, n, i),
						fmt.Sprintf("key-%d", rand.IntN(50)))
					blame(err)
				}
				if rand.IntN(10) == 0 {
					blame(tx.Rollback())
					continue
				}
				blame(tx.Commit())
				written.Add(10)
			}
		})
	}
	for i := range int32(3) {
		st, err := f.Open(t.Context(), relay.StoreOptions{Relay: fmt.Sprint(i), Claim: claim, Lanes: 3, ClaimTimeout: time.Second})
		require.NoError(t, err)
		if claim == relay.ClaimLanes {
			require.NoError(t, st.Own(t.Context(), []relay.OwnLane{{Lane: i}}))
		}
		wg.Go(func() {
			for ctx.Err() == nil {
				n, err := relayOnce(context.Background(), st)
				if err != nil {
					t.Errorf("relay: %v", err)
					return
				}
				sent.Add(n)
			}
		})
	}
	wg.Go(func() { // retention, as it must be done: by primary key
		for ctx.Err() == nil {
			rows, err := f.l.numbers(context.Background(), f.db, fmt.Sprintf("SELECT %s FROM %s%s WHERE %s LIMIT 200",
				col(f.l.cols.ID), f.l.table, f.l.plan.statusIndex, f.l.status(f.l.states.Sent)))
			if err == nil && len(rows) > 0 {
				err = again(context.Background(), func() error {
					_, err := f.probe.db.ExecContext(context.Background(),
						fmt.Sprintf("DELETE FROM %s WHERE %s IN (%s)", f.l.table, col(f.l.cols.ID), f.l.list(rows)))
					return err
				})
			}
			if err != nil {
				t.Errorf("retention: %v", err)
			}
		}
	})
	wg.Wait()
	t.Logf("%d events written, %d marked", written.Load(), sent.Load())
	require.Zero(t, victims.Load())
	require.Zero(t, others.Load())
	require.Positive(t, sent.Load())
}

func insertOne(l *layout) string {
	names := []string{l.cols.EventID, l.cols.AggregateID, l.cols.AggregateType, l.cols.EventType, l.cols.Payload}
	values := "?, ?, 'order', 'OrderCreated', '{}'"
	if l.sameWord() {
		names, values = append(names, l.cols.Topic), values+", 'orders'"
	}
	list := ""
	for i, n := range names {
		if i > 0 {
			list += ", "
		}
		list += col(n)
	}
	return fmt.Sprintf("INSERT INTO %s (%s) VALUES (%s)", l.table, list, values)
}

// relayOnce claims 200 rows and marks most as sent, some as failed, and gives some back.
func relayOnce(ctx context.Context, st relay.Store) (marked int64, err error) {
	got, err := st.Fetch(ctx, relay.Fetch{Limit: 200, MaxBytes: 1 << 20})
	if err != nil {
		return 0, err
	}
	var outs []relay.Outcome
	for _, e := range got.Events {
		o := relay.Outcome{Row: e.Row, EventID: e.ID, Claim: e.Claim, From: e.State, State: relay.StateSent,
			Receipt: relay.Receipt{Topic: "orders", Offset: 1}}
		switch rand.IntN(20) {
		case 0:
			o.State, o.Attempt, o.RetryAfter, o.LastError = relay.StateFailed, true, 50*time.Millisecond, "TEST"
		case 1:
			o.State = relay.StateNew
		}
		outs = append(outs, o)
	}
	_, err = st.Settle(ctx, outs)
	return int64(len(outs)), err
}

// A deadlock inside the relay is tried again and costs nothing.
func TestAgain(t *testing.T) {
	t.Parallel()
	calls := 0
	require.NoError(t, again(t.Context(), func() error {
		if calls++; calls < 4 {
			return fmt.Errorf("mark: %w", &driver.MySQLError{Number: errDeadlock})
		}
		return nil
	}))
	require.Equal(t, 4, calls)
	calls = 0
	require.Error(t, again(t.Context(), func() error {
		calls++
		return &driver.MySQLError{Number: errLockWait}
	}))
	require.Equal(t, 6, calls, "not for ever")
	calls = 0
	require.Error(t, again(t.Context(), func() error {
		calls++
		return &driver.MySQLError{Number: errNoTable}
	}))
	require.Equal(t, 1, calls)
}

// A mark that meets a row held by a service waits, and succeeds as soon as the row is free.
func TestStore_Settle_waits_for_a_held_row(t *testing.T) {
	onBoth(t, func(t *testing.T, v flavour) {
		dsn, db := v.newDatabase(t, "")
		s := openStore(t, dsn, ownTable())
		write(t, db, "a-1", "a-2")
		evs := fetch(t, s, relay.Fetch{})
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = tx.ExecContext(t.Context(), "SELECT * FROM outbox_events WHERE event_id = 'a-2' FOR UPDATE")
		require.NoError(t, err)
		done := make(chan error, 1)
		go func() {
			_, err := s.Settle(context.Background(), []relay.Outcome{outcome(evs[0], relay.StateSent),
				outcome(evs[1], relay.StateSent)})
			done <- err
		}()
		waitForLock(t, db)
		select {
		case err := <-done:
			require.Fail(t, "did not wait", "%v", err)
		default:
		}
		require.Empty(t, fetch(t, s, relay.Fetch{Busy: []relay.RowID{evs[0].Row, evs[1].Row}}), "reads wait for nobody")
		require.NoError(t, tx.Rollback())
		require.NoError(t, <-done)
	})
}

// waitForLock returns once a transaction of this server waits for a lock of ours.
func waitForLock(t *testing.T, db *sql.DB) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	tick := time.NewTicker(200 * time.Millisecond) // the server renews this table only when nobody has asked for 100 ms
	defer tick.Stop()
	for {
		<-tick.C
		var n int
		require.NoError(t, db.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM information_schema.innodb_trx x
JOIN information_schema.processlist p ON p.id = x.trx_mysql_thread_id WHERE x.trx_state = 'LOCK WAIT' AND p.db = DATABASE()`).Scan(&n))
		if n > 0 {
			return
		}
		require.True(t, time.Now().Before(deadline), "nobody waits")
	}
}

// Claims pass over rows that others hold instead of waiting (C10).
func TestStore_Fetch_passes_over_held_rows(t *testing.T) {
	onBoth(t, func(t *testing.T, v flavour) {
		dsn, db := v.newDatabase(t, "")
		s := openStore(t, dsn, ownTable(), func(o *relay.StoreOptions) { o.Claim = relay.ClaimRows })
		write(t, db, "a-1", "b-1", "c-1")
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = tx.ExecContext(t.Context(), "SELECT * FROM outbox_events WHERE event_id = 'b-1' FOR UPDATE")
		require.NoError(t, err)
		require.Equal(t, []string{"a-1", "c-1"}, ids(fetch(t, s, relay.Fetch{})))
		require.NoError(t, tx.Rollback())
		require.Equal(t, []string{"b-1"}, ids(fetch(t, s, relay.Fetch{})))
	})
}

func TestStore_Acquire_loses_with_its_session(t *testing.T) {
	onBoth(t, func(t *testing.T, v flavour) {
		dsn, db := v.newDatabase(t, "")
		one, two := openStore(t, dsn, ownTable()), openStore(t, dsn, ownTable(),
			func(o *relay.StoreOptions) { o.Relay = "relay-2" })
		lost, err := one.Acquire(t.Context(), nil)
		require.NoError(t, err)
		holder, in := make(chan string, 1), make(chan error, 1)
		go func() {
			_, err := two.Acquire(context.Background(), func(h string) { holder <- h })
			in <- err
		}()
		h := <-holder
		require.Contains(t, h, "claim: single, connection")
		if v == mysqlServer {
			require.Contains(t, h, "relay-1")
		}
		l := one.tableLock()
		killHolder(t, db, l.single())
		select {
		case <-lost:
		case <-time.After(10 * time.Second):
			require.Fail(t, "the loss was not noticed")
		}
		require.NoError(t, <-in, "the standby takes over")
	})
}

// killHolder ends the session that has a lock.
func killHolder(t *testing.T, db *sql.DB, lock string) {
	t.Helper()
	var id int64
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT IS_USED_LOCK(?)", lock).Scan(&id))
	_, err := db.ExecContext(t.Context(), fmt.Sprintf("KILL %d", id))
	require.NoError(t, err)
}

// TestStore_Acquire_retakes: relays that share a table go on when the session ends that keeps others away, once the
// table is taken anew; if others came first they do not.
func TestStore_Acquire_retakes(t *testing.T) {
	onBoth(t, func(t *testing.T, v flavour) {
		for _, claim := range []relay.ClaimMode{relay.ClaimRows, relay.ClaimLanes} {
			dsn, db := v.newDatabase(t, "")
			one := openStore(t, dsn, ownTable(), func(o *relay.StoreOptions) { o.Claim, o.Lanes = claim, 4 })
			if claim == relay.ClaimLanes {
				require.NoError(t, one.Own(t.Context(), []relay.OwnLane{{Lane: 0}, {Lane: 1}, {Lane: 2}, {Lane: 3}}))
			}
			lost, err := one.Acquire(t.Context(), nil)
			require.NoError(t, err)
			l := one.tableLock()
			held := func() bool {
				one.suspect()
				var held bool
				require.NoError(t, db.QueryRowContext(t.Context(), "SELECT IS_USED_LOCK(?) IS NOT NULL", l.numbered(string(claim), 0)).Scan(&held))
				return held
			}
			killHolder(t, db, l.numbered(string(claim), 0))
			require.Eventually(t, func() bool { return !held() || one.owned().away.Load() }, 10*time.Second, time.Millisecond)
			require.Eventually(t, func() bool { return held() && !one.owned().away.Load() }, 10*time.Second, 10*time.Millisecond)
			_, err = one.Fetch(t.Context(), relay.Fetch{Limit: 1, MaxBytes: 1})
			require.NoError(t, err)

			other, err := db.Conn(t.Context()) // a relay of another mode comes first
			require.NoError(t, err)
			defer other.Close()
			got, err := getLock(t.Context(), other, l.guard(), 5)
			require.NoError(t, err)
			require.True(t, got)
			killHolder(t, db, l.numbered(string(claim), 0))
			require.Eventually(t, func() bool { one.suspect(); return one.owned().away.Load() }, 10*time.Second, 10*time.Millisecond)
			_, err = one.Fetch(t.Context(), relay.Fetch{Limit: 1, MaxBytes: 1})
			require.ErrorIs(t, err, errAway)
			_, err = getLock(t.Context(), other, l.single(), 0)
			require.NoError(t, err)
			_, err = other.ExecContext(t.Context(), "DO RELEASE_LOCK("+quote(l.guard())+")")
			require.NoError(t, err)
			select {
			case <-lost:
			case <-time.After(20 * time.Second):
				require.Fail(t, "another relay has the table, and this one goes on")
			}
		}
	})
}
