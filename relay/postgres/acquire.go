package postgres

import (
	"context"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/relay"
)

// retryEvery is how often a relay that waits looks at the table's locks.
const retryEvery = time.Second

// tableLock names the advisory locks of a table, pairs of numbers. The first is the table's. The second is 0 for
// the guard, which makes looking and taking one step; else it is the same for relays that may work beside one
// another, and its low bits tell their claim mode.
type tableLock struct {
	table, peers uint32
	shared       bool // peers take it in shared mode
	database     uint32
	unlike       string // see relay.StoreOptions
}

// lockModes are the low bits of a lock's second number.
var lockModes = []relay.ClaimMode{"", relay.ClaimSingle, relay.ClaimRows, relay.ClaimLanes}

func (s *Store) tableLock() tableLock {
	c := s.layout.catalog
	l := tableLock{table: hash32(fmt.Sprintf("postrider\x00%d", c.oid)), database: c.database, unlike: s.options.Unlike()}
	peers := s.options.Peers()
	l.shared = peers != ""
	l.peers = hash32(peers) &^ 3
	for i, mode := range lockModes {
		if mode == s.options.Claim {
			l.peers |= uint32(i)
		}
	}
	return l
}

func hash32(text string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(text))
	return h.Sum32()
}

// lockedByOthers is the condition for locks of relays beside whom this one may not work; $1 the table, $2 the
// peers, $3 the database.
const lockedByOthers = `l.locktype = 'advisory' AND l.objsubid = 2 AND l.granted AND l.database = $3 AND l.classid = $1 AND l.objid <> 0
	AND (l.objid <> $2 OR NOT $4::bool)`

// try takes the lock if nobody has the table beside whom this relay may not work. The server goes through both
// statements without waiting for the relay, so the guard is held for a moment, whatever becomes of the relay.
func (l *tableLock) try(ctx context.Context, conn *pgx.Conn) (got bool, err error) {
	take := "pg_try_advisory_lock"
	if l.shared {
		take = "pg_try_advisory_lock_shared"
	}
	var batch pgx.Batch
	batch.Queue("SELECT pg_advisory_xact_lock($1, 0)", int32(l.table))
	batch.Queue(fmt.Sprintf("SELECT CASE WHEN EXISTS (SELECT FROM pg_locks l WHERE %s) THEN false ELSE %s($5, $6) END", lockedByOthers, take),
		l.table, l.peers, l.database, l.shared, int32(l.table), int32(l.peers))
	results := conn.SendBatch(ctx, &batch)
	defer func() { _ = results.Close() }()
	if _, err := results.Exec(); err != nil {
		return false, fmt.Errorf("guard the table's locks: %w", err)
	}
	if err := results.QueryRow().Scan(&got); err != nil {
		return false, fmt.Errorf("take the table's lock: %w", err)
	}
	return got, results.Close()
}

// holder says who has the table and how, for people.
func (l *tableLock) holder(ctx context.Context, conn *pgx.Conn) string {
	var who, since string
	var pid, others int
	var peers uint32
	err := conn.QueryRow(ctx, fmt.Sprintf(`SELECT coalesce(nullif(a.application_name, ''), 'a session'), l.pid, l.objid,
			coalesce(', since ' || to_char(a.backend_start AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS') || ' UTC', ''), (count(*) OVER () - 1)::int4
		FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
		WHERE %s ORDER BY a.backend_start LIMIT 1`, lockedByOthers), l.table, l.peers, l.database, l.shared).Scan(&who, &pid, &peers, &since, &others)
	if err != nil {
		return "another relay"
	}
	text := fmt.Sprintf("%s, claim: %s, server process %d%s", who, lockModes[peers&3], pid, since)
	if peers&3 == l.peers&3 && l.shared {
		text += ", " + l.unlike
	}
	if others > 0 {
		text += fmt.Sprintf(", and %d more", others)
	}
	return text
}

// Acquire implements relay.Store. The lock belongs to a session of its own; a waiting relay asks each second
// rather than waiting in the server, where the wait would keep a snapshot open and vacuum away.
func (s *Store) Acquire(ctx context.Context, standby func(holder string)) (<-chan struct{}, error) {
	if s.db.pooled {
		return make(chan struct{}), nil
	}
	l := s.tableLock()
	conn, err := s.lockSession(ctx)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(retryEvery)
	defer tick.Stop()
	for told := false; ; {
		got, err := l.try(ctx, conn)
		if err == nil && got {
			return s.owner.hold(conn, s.retake(l)), nil
		}
		if err == nil && !told {
			told = true
			standby(l.holder(ctx, conn))
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

// retake is how a lock is taken anew whose session has ended; nil where that ends the ownership: somebody who was
// waiting may have had the table meanwhile and done anything. Of relays that share a table it is only asked whether
// others are there now, since what keeps these from one another's work is not the lock.
func (s *Store) retake(l tableLock) func(context.Context) (*pgx.Conn, bool, error) {
	if !l.shared {
		return nil
	}
	return func(ctx context.Context) (conn *pgx.Conn, got bool, err error) {
		if conn, err = s.lockSession(ctx); err != nil {
			return nil, false, err
		}
		if got, err = l.try(ctx, conn); err != nil || !got {
			_ = conn.Close(context.WithoutCancel(ctx))
		}
		return conn, got, err
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
