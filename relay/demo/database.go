package demo

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"path/filepath"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/schema"
)

// openDatabase makes a SQLite file as a service would: the product's tables beside its own.
func openDatabase(ctx context.Context, path, tables string) (*sql.DB, error) {
	db, err := openFile(path, url.Values{"_journal_mode": {"WAL"}, "_synchronous": {"NORMAL"}, "_txlock": {"immediate"}})
	if err != nil {
		return nil, err
	}
	// A file has one writer at a time, and the demo has one service a file.
	db.SetMaxOpenConns(1)
	if _, err := schema.Apply(ctx, db, outbox.SQLite); err != nil {
		_ = db.Close()
		return nil, fmt.Errorf("prepare %s: %w", path, err)
	}
	if _, err := db.ExecContext(ctx, tables); err != nil {
		_ = db.Close()
		return nil, fmt.Errorf("prepare %s: %w", path, err)
	}
	return db, nil
}

// openReader opens an existing file for looking only: snapshots, which wait for nobody.
func openReader(path string) (*sql.DB, error) {
	return openFile(path, url.Values{"_query_only": {"true"}})
}

func openFile(path string, settings url.Values) (*sql.DB, error) {
	settings.Set("_busy_timeout", "10000")
	u := url.URL{Scheme: "file", Path: filepath.ToSlash(path), RawQuery: settings.Encode()}
	db, err := sql.Open("sqlite", u.String())
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return db, nil
}

// databaseURL is the file in the form that the relay's store takes.
func databaseURL(path string) string {
	return "sqlite:" + (&url.URL{Path: filepath.ToSlash(path)}).EscapedPath()
}

// ownTable is the layout that schema.Apply makes.
func ownTable() relay.Table {
	return relay.Table{
		Name: "outbox_events", Own: true,
		Columns: relay.Columns{
			ID: "id", EventID: "event_id", AggregateType: "aggregate_type", AggregateID: "aggregate_id",
			EventType: "event_type", Topic: "topic", MessageKey: "message_key", Payload: "payload",
			Headers: "headers", Status: "status", RetryCount: "retry_count", NextRetryAt: "next_retry_at",
			LastError: "last_error", CreatedAt: "created_at", UpdatedAt: "updated_at", SentAt: "sent_at",
			KafkaTopic: "kafka_topic", KafkaPartition: "kafka_partition", KafkaOffset: "kafka_offset",
		},
		States: relay.States{
			New: string(relay.StateNew), Sending: string(relay.StateSending), Sent: string(relay.StateSent),
			Failed: string(relay.StateFailed), Dead: string(relay.StateDead),
		},
	}
}

// inTx runs work in a transaction that commits when work returns nil and rolls back otherwise.
func inTx(ctx context.Context, db *sql.DB, work func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	if err := work(tx); err != nil {
		_ = tx.Rollback() // says only that the context has rolled it back already
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}
