package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// maxTries bounds how often a transaction is tried again that the server undid for another's sake.
const maxTries = 5

// stmt is one statement of a transaction and what is done with its rows.
type stmt struct {
	sql  string
	args []any
	read func(pgx.Rows) error // nil: no rows are expected
	done func(pgconn.CommandTag)
}

// db runs transactions. All of a transaction's statements go to the server in one go and its end with
// them, so no lock waits for the network, and a pooler sees one transaction.
type db struct {
	pool     *pgxpool.Pool
	pooled   bool
	settings [][2]string
}

// tx runs the statements in one transaction, again if the server had to undo it because of another
// transaction. A reader is given the rows anew then.
func (d *db) tx(ctx context.Context, stmts ...stmt) error {
	for try := 1; ; try++ {
		err := d.once(ctx, stmts)
		var pg *pgconn.PgError
		undone := errors.As(err, &pg) && (pg.Code == codeSerialization || pg.Code == codeDeadlock)
		if err == nil || !undone || try == maxTries {
			return err
		}
	}
}

func (d *db) once(ctx context.Context, stmts []stmt) error {
	if d.pooled {
		stmts = d.wrap(stmts)
	}
	var batch pgx.Batch
	for i := range stmts {
		batch.Queue(stmts[i].sql, stmts[i].args...)
	}
	results := d.pool.SendBatch(ctx, &batch)
	for i := range stmts {
		if err := stmts[i].answer(results); err != nil {
			_ = results.Close()
			return err
		}
	}
	return results.Close()
}

func (s *stmt) answer(results pgx.BatchResults) error {
	if s.read == nil {
		tag, err := results.Exec()
		if err == nil && s.done != nil {
			s.done(tag)
		}
		return err
	}
	rows, err := results.Query()
	if err != nil {
		return err
	}
	if err := s.read(rows); err != nil {
		rows.Close()
		return err
	}
	rows.Close()
	return rows.Err()
}

// wrap makes a whole transaction of the statements that leaves nothing behind in the session.
func (d *db) wrap(stmts []stmt) []stmt {
	set := "SELECT "
	for i, kv := range d.settings {
		if i > 0 {
			set += ", "
		}
		set += fmt.Sprintf("set_config('%s', '%s', true)", kv[0], kv[1])
	}
	out := make([]stmt, 0, len(stmts)+3)
	out = append(out, stmt{sql: "BEGIN ISOLATION LEVEL READ COMMITTED"}, stmt{sql: set})
	out = append(out, stmts...)
	return append(out, stmt{sql: "COMMIT"})
}

// pids are the server processes of the store's own sessions.
type pids struct {
	mu  sync.Mutex
	set map[uint32]struct{}
}

func (p *pids) add(pid uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.set == nil {
		p.set = map[uint32]struct{}{}
	}
	p.set[pid] = struct{}{}
}

func (p *pids) remove(pid uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.set, pid)
}

func (p *pids) list() []int32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]int32, 0, len(p.set))
	for pid := range p.set {
		out = append(out, int32(pid))
	}
	return out
}
