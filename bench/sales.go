package main

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// sqlSales are the ways with database/sql, statement by statement.
func (s *shop) sqlSales() []sale {
	sales := []sale{
		{"database/sql: BEGIN, two statements, COMMIT", true, s.inSQL(func(ctx context.Context, _ *sql.Conn, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, s.count, 1)
			return err
		})},
		{"an event by Writer.Write", false, s.inSQL(func(ctx context.Context, _ *sql.Conn, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, s.count, 1); err != nil {
				return err
			}
			return s.writer.Write(ctx, tx, s.event())
		})},
		{"the same INSERT by hand", false, s.inSQL(func(ctx context.Context, _ *sql.Conn, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, s.count, 1); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, s.hand, s.byHand()...)
			return err
		})},
	}
	if s.conn == nil {
		return sales
	}
	return append(sales, sale{"an event in a pgx batch with the last statement", false, s.inSQL(func(ctx context.Context, conn *sql.Conn, _ *sql.Tx) error {
		batch := &pgx.Batch{}
		batch.Queue(s.count, 1)
		if err := s.native.Queue(ctx, batch, s.event()); err != nil {
			return err
		}
		return conn.Raw(func(driver any) error { return driver.(*stdlib.Conn).Conn().SendBatch(ctx, batch).Close() })
	})})
}

// inSQL makes the transaction of its first statement and of what do adds.
func (s *shop) inSQL(do func(ctx context.Context, conn *sql.Conn, tx *sql.Tx) error) func(context.Context) error {
	return func(ctx context.Context) error {
		conn, err := s.db.Conn(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		tx, err := conn.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.ExecContext(ctx, s.order, s.no()); err != nil {
			return err
		}
		if err := do(ctx, conn, tx); err != nil {
			return err
		}
		return tx.Commit()
	}
}

// pgxSales are the ways with pgx: statement by statement, and in batches.
func (s *shop) pgxSales() []sale {
	return []sale{
		{"pgx: BEGIN, two statements, COMMIT", true, s.inTx(func(ctx context.Context, tx pgx.Tx) error {
			return s.both(ctx, tx)
		})},
		{"an event by Writer.Write", false, s.inTx(func(ctx context.Context, tx pgx.Tx) error {
			if err := s.both(ctx, tx); err != nil {
				return err
			}
			return s.native.Write(ctx, tx, s.event())
		})},
		{"an event in a batch with the last statement", false, s.inTx(func(ctx context.Context, tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, s.order, s.no()); err != nil {
				return err
			}
			batch := &pgx.Batch{}
			batch.Queue(s.count, 1)
			if err := s.native.Queue(ctx, batch, s.event()); err != nil {
				return err
			}
			return tx.SendBatch(ctx, batch).Close()
		})},
		{"pgx: BEGIN, a batch of the two statements, COMMIT", true, s.inTx(func(ctx context.Context, tx pgx.Tx) error {
			return tx.SendBatch(ctx, s.batch()).Close()
		})},
		{"an event in the batch, by Writer.Queue", false, s.inTx(func(ctx context.Context, tx pgx.Tx) error {
			batch := s.batch()
			if err := s.native.Queue(ctx, batch, s.event()); err != nil {
				return err
			}
			return tx.SendBatch(ctx, batch).Close()
		})},
		{"the same INSERT in the batch, by hand", false, s.inTx(func(ctx context.Context, tx pgx.Tx) error {
			batch := s.batch()
			batch.Queue(s.hand, s.byHand()...)
			return tx.SendBatch(ctx, batch).Close()
		})},
	}
}

func (s *shop) inTx(do func(ctx context.Context, tx pgx.Tx) error) func(context.Context) error {
	return func(ctx context.Context) error {
		tx, err := s.conn.Begin(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(ctx) }()
		if err := do(ctx, tx); err != nil {
			return err
		}
		return tx.Commit(ctx)
	}
}

func (s *shop) both(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, s.order, s.no()); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, s.count, 1)
	return err
}

func (s *shop) batch() *pgx.Batch {
	batch := &pgx.Batch{}
	batch.Queue(s.order, s.no())
	batch.Queue(s.count, 1)
	return batch
}
