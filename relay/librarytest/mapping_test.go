package librarytest

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/outbox"
)

// mapping is an outbox table as it is found in the wild, and how the writer is told of it.
type mapping struct {
	name    string
	dialect outbox.Dialect // MySQL stands for MariaDB too, but for its own types
	ddl     []string
	options outbox.Options
	event   func(e *outbox.Event) // what the table cannot hold is taken out
	want    string                // a condition that exactly one row fulfils
}

const payload = `{"note": "it's", "n": 12345678901234567890}`

func full() outbox.Event {
	return outbox.Event{
		ID: "0190a0b0-0000-7000-8000-00000000000a", AggregateType: "Order", AggregateID: "o-71", Type: "OrderCreated",
		Topic: "orders", Key: []byte("u-7"), Payload: []byte(payload), Headers: map[string]string{"source": "shop"},
	}
}

const omit = outbox.Omit

var mappings = []mapping{
	{
		name: "article-postgres", dialect: outbox.Postgres,
		ddl: []string{`CREATE TABLE outbox_events (id BIGSERIAL PRIMARY KEY, event_id VARCHAR(64) NOT NULL UNIQUE, aggregate_type VARCHAR(64) NOT NULL,
			aggregate_id VARCHAR(64) NOT NULL, event_type VARCHAR(128) NOT NULL, payload JSONB NOT NULL, headers JSONB,
			status VARCHAR(16) NOT NULL DEFAULT 'NEW', retry_count INT NOT NULL DEFAULT 0, next_retry_at TIMESTAMP NOT NULL DEFAULT NOW(),
			created_at TIMESTAMP NOT NULL DEFAULT NOW(), sent_at TIMESTAMP NULL)`},
		options: outbox.ArticlePostgres(),
		event:   func(e *outbox.Event) { e.Topic, e.Key = "", nil },
		want: `event_id = '0190a0b0-0000-7000-8000-00000000000a' AND aggregate_type = 'Order' AND aggregate_id = 'o-71' AND
			event_type = 'OrderCreated' AND payload ->> 'n' = '12345678901234567890' AND headers ->> 'source' = 'shop' AND
			status = 'NEW' AND next_retry_at <= NOW() AND sent_at IS NULL`,
	},
	{
		name: "article-mysql", dialect: outbox.MySQL,
		ddl: []string{`CREATE TABLE outbox_event (id BIGINT PRIMARY KEY AUTO_INCREMENT, event_id VARCHAR(64) NOT NULL, aggregate_type VARCHAR(64) NOT NULL,
			aggregate_id VARCHAR(64) NOT NULL, event_type VARCHAR(128) NOT NULL, topic VARCHAR(128) NOT NULL, message_key VARCHAR(128) DEFAULT NULL,
			payload JSON NOT NULL, status VARCHAR(32) NOT NULL DEFAULT 'PENDING', retry_count INT NOT NULL DEFAULT 0,
			next_retry_at DATETIME DEFAULT NULL, sent_at DATETIME DEFAULT NULL, created_at DATETIME NOT NULL, updated_at DATETIME NOT NULL,
			UNIQUE KEY uk_event_id (event_id), KEY idx_publish_scan (status, next_retry_at, id), KEY idx_aggregate (aggregate_type, aggregate_id))`},
		options: outbox.ArticleMySQL(),
		event:   func(e *outbox.Event) { e.Headers = nil },
		want: `event_id = '0190a0b0-0000-7000-8000-00000000000a' AND topic = 'orders' AND message_key = 'u-7' AND
			JSON_UNQUOTE(JSON_EXTRACT(payload, '$.n')) = '12345678901234567890' AND status = 'PENDING' AND
			ABS(TIMESTAMPDIFF(SECOND, created_at, NOW())) < 60 AND updated_at = created_at AND next_retry_at IS NULL`,
	},
	{
		name: "T03 CAP", dialect: outbox.Postgres,
		ddl: []string{`CREATE TABLE "cap.published" ("Id" BIGINT PRIMARY KEY, "Version" VARCHAR(20) NOT NULL, "Name" VARCHAR(200) NOT NULL,
			"Content" TEXT, "Retries" INT NOT NULL, "Added" TIMESTAMP NOT NULL, "ExpiresAt" TIMESTAMP, "StatusName" VARCHAR(50) NOT NULL)`,
			`CREATE SEQUENCE ids`},
		options: outbox.Options{
			Table: `"cap.published"`, PayloadType: outbox.Text,
			Columns: outbox.Columns{
				EventID: omit, AggregateType: omit, AggregateID: omit, EventType: omit, Topic: "Name", MessageKey: omit,
				Payload: "Content", Headers: omit,
			},
			Set: map[string]string{
				"Id": "nextval('ids')", "Version": "'v1'", "Retries": "0", "Added": "now() AT TIME ZONE 'UTC'", "StatusName": "'Scheduled'",
			},
		},
		event: func(e *outbox.Event) { e.Key, e.Headers = nil, nil },
		want:  `"Id" = 1 AND "Name" = 'orders' AND "Content" LIKE '{"note": "it''s"%' AND "StatusName" = 'Scheduled' AND "ExpiresAt" IS NULL`,
	},
	{
		name: "T03 CAP on MySQL, a dot in the name", dialect: outbox.MySQL,
		ddl: []string{"CREATE TABLE `cap.published` (Id BIGINT PRIMARY KEY, Name VARCHAR(200) NOT NULL, Content LONGTEXT, StatusName VARCHAR(40) NOT NULL)"},
		options: outbox.Options{
			Table: "`cap.published`", PayloadType: outbox.Text,
			Columns: outbox.Columns{
				EventID: omit, AggregateType: omit, AggregateID: omit, EventType: omit, Topic: "Name", MessageKey: omit,
				Payload: "Content", Headers: omit,
			},
			Set: map[string]string{"Id": "UUID_SHORT() & 0x7fffffffffffffff", "StatusName": "'Scheduled'"},
		},
		event: func(e *outbox.Event) { e.Key, e.Headers = nil, nil },
		want:  "Id > 0 AND Name = 'orders' AND StatusName = 'Scheduled'",
	},
	{
		name: "T05 tomorrow-one", dialect: outbox.Postgres,
		ddl: []string{`CREATE TABLE outbox_kafka (id BIGSERIAL PRIMARY KEY, created TIMESTAMPTZ NOT NULL, processed TIMESTAMPTZ, topic VARCHAR(128) NOT NULL,
			key VARCHAR(128), value BYTEA NOT NULL, headers JSONB)`},
		options: outbox.Options{
			Table: "outbox_kafka", Required: outbox.Required{Topic: true, Payload: true}, HeadersType: outbox.JSONB,
			Columns: outbox.Columns{
				EventID: omit, AggregateType: omit, AggregateID: omit, EventType: omit, MessageKey: "key", Payload: "value",
			},
			Set: map[string]string{"created": "now()"},
		},
		want: `topic = 'orders' AND key = 'u-7' AND convert_from(value, 'UTF8') LIKE '{"note": "it''s"%' AND headers = '{"source": "shop"}' AND processed IS NULL`,
	},
	{
		name: "T08 tor, in a schema", dialect: outbox.MySQL,
		ddl: []string{"CREATE TABLE my_outbox_table (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, aggregate_type VARCHAR(255), aggregate_id VARCHAR(255), payload LONGBLOB)"},
		options: outbox.Options{
			Table:   "my_outbox_table",
			Columns: outbox.Columns{EventID: omit, EventType: omit, Topic: omit, MessageKey: omit, Headers: omit},
		},
		event: func(e *outbox.Event) { e.Topic, e.Key, e.Headers = "", nil, nil },
		want:  "aggregate_type = 'Order' AND aggregate_id = 'o-71'",
	},
	{
		name: "T09 a hyphen and capitals", dialect: outbox.MySQL,
		ddl: []string{"CREATE TABLE `OUTBOX-ORDER` (id INT AUTO_INCREMENT PRIMARY KEY, aggregate_id VARCHAR(40), aggregate_type VARCHAR(50), event_type VARCHAR(50), payload TEXT)"},
		options: outbox.Options{
			Table: "OUTBOX-ORDER", PayloadType: outbox.Text, MaxPayloadBytes: 65535,
			Lengths: outbox.Lengths{AggregateID: 40, AggregateType: 50, EventType: 50},
			Columns: outbox.Columns{EventID: omit, Topic: omit, MessageKey: omit, Headers: omit},
		},
		event: func(e *outbox.Event) { e.Topic, e.Key, e.Headers = "", nil, nil },
		want:  "event_type = 'OrderCreated' AND payload LIKE '{\"note\": \"it''s\"%'",
	},
	{
		name: "T11 KafkaFlow, binary keys", dialect: outbox.Postgres,
		ddl: []string{`CREATE TABLE outbox (sequence_id BIGSERIAL, topic_name VARCHAR(255) CHECK (topic_name <> ''), partition INT, message_key BYTEA,
			message_headers TEXT CHECK (message_headers <> ''), message_body BYTEA, date_added_utc TIMESTAMP DEFAULT (now() AT TIME ZONE 'UTC'))`},
		options: outbox.Options{
			Table: `"outbox"`, KeyType: outbox.Bytes, HeadersType: outbox.Text,
			Columns: outbox.Columns{
				EventID: omit, AggregateType: omit, AggregateID: omit, EventType: omit, Topic: "topic_name", Payload: "message_body",
				Headers: "message_headers",
			},
		},
		event: func(e *outbox.Event) { e.Key, e.Payload = []byte("\x00\xff"), nil },
		want:  `message_key = '\x00ff' AND message_body IS NULL AND message_headers = '{"source":"shop"}'`,
	},
	{
		name: "T12 Debezium", dialect: outbox.Postgres,
		ddl: []string{`CREATE TABLE outbox (id UUID PRIMARY KEY, aggregatetype VARCHAR(255) NOT NULL, aggregateid VARCHAR(255) NOT NULL,
			type VARCHAR(255) NOT NULL, payload JSONB)`},
		options: outbox.Debezium(),
		event:   func(e *outbox.Event) { e.Topic, e.Key, e.Headers = "", nil, nil },
		want:    `id = '0190a0b0-0000-7000-8000-00000000000a' AND aggregatetype = 'Order' AND type = 'OrderCreated'`,
	},
	{
		name: "T14 an enum and a uuid", dialect: outbox.Postgres,
		ddl: []string{`CREATE TYPE outbox_event_status AS ENUM ('UNPUBLISHED', 'PUBLISHED', 'CANCELLED')`,
			`CREATE TABLE outbox_event (id UUID PRIMARY KEY, aggregate_id UUID NOT NULL, event_name VARCHAR(150) NOT NULL, payload JSONB NOT NULL,
			status outbox_event_status NOT NULL, created_at TIMESTAMPTZ NOT NULL DEFAULT now(), published_at TIMESTAMPTZ)`},
		options: outbox.Options{
			Table: "outbox_event", EventIDType: outbox.UUID, PayloadType: outbox.JSONB, Required: outbox.Required{Payload: true},
			Columns: outbox.Columns{EventID: "id", AggregateType: omit, EventType: "event_name", Topic: omit, MessageKey: omit, Headers: omit},
			Set:     map[string]string{"status": "'UNPUBLISHED'"},
		},
		event: func(e *outbox.Event) {
			e.AggregateID, e.Topic, e.Key, e.Headers = "0190a0b0-0000-7000-8000-00000000000b", "", nil, nil
		},
		want: `status = 'UNPUBLISHED' AND aggregate_id = '0190a0b0-0000-7000-8000-00000000000b'`,
	},
	{
		name: "T15 MariaDB's uuid", dialect: outbox.MariaDB,
		ddl: []string{"CREATE TABLE `Outbox` (id UUID PRIMARY KEY, created_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3), metadata BLOB, payload BLOB, times_attempted INT NOT NULL DEFAULT 0)"},
		options: outbox.Options{
			Table: "Outbox", EventIDType: outbox.UUID, HeadersType: outbox.Bytes,
			Columns: outbox.Columns{
				EventID: "id", AggregateType: omit, AggregateID: omit, EventType: omit, Topic: omit, MessageKey: omit, Headers: "metadata",
			},
		},
		event: func(e *outbox.Event) { e.Topic, e.Key = "", nil },
		want:  "id = '0190a0b0-0000-7000-8000-00000000000a' AND metadata = '{\"source\":\"shop\"}'",
	},
	{
		name: "binary(16)", dialect: outbox.MySQL,
		ddl: []string{"CREATE TABLE box (id BINARY(16) PRIMARY KEY, payload BLOB)"},
		options: outbox.Options{
			Table: "box", EventIDType: outbox.UUIDBytes,
			Columns: outbox.Columns{
				EventID: "id", AggregateType: omit, AggregateID: omit, EventType: omit, Topic: omit, MessageKey: omit, Headers: omit,
			},
		},
		event: func(e *outbox.Event) { e.Topic, e.Key, e.Headers = "", nil, nil },
		want:  "id = x'0190a0b000007000800000000000000a'",
	},
	{
		name: "T16 Prisma", dialect: outbox.SQLite,
		ddl: []string{`CREATE TABLE "Outbox" (id TEXT PRIMARY KEY, type TEXT NOT NULL, payload TEXT NOT NULL, status TEXT NOT NULL DEFAULT 'pending',
			attempts INTEGER NOT NULL DEFAULT 0, "lastError" TEXT, "createdAt" DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP, "updatedAt" DATETIME NOT NULL)`},
		options: outbox.Options{
			Table: "Outbox", PayloadType: outbox.Text, Required: outbox.Required{Payload: true},
			Columns: outbox.Columns{
				EventID: "id", AggregateType: omit, AggregateID: omit, EventType: "type", Topic: omit, MessageKey: omit, Headers: omit,
			},
			Set: map[string]string{"updatedAt": "CURRENT_TIMESTAMP"},
		},
		event: func(e *outbox.Event) { e.Topic, e.Key, e.Headers = "", nil, nil },
		want:  `type = 'OrderCreated' AND status = 'pending' AND typeof(payload) = 'text'`,
	},
	{
		name: "T17 Open Outbox", dialect: outbox.Postgres,
		ddl: []string{`CREATE TABLE open_outbox (event_id UUID PRIMARY KEY, event_type TEXT NOT NULL, partition_key TEXT, payload BYTEA NOT NULL,
			headers JSONB NOT NULL DEFAULT '{}', status TEXT NOT NULL DEFAULT 'PENDING', attempts INT NOT NULL DEFAULT 0, created_at TIMESTAMPTZ NOT NULL DEFAULT now())`},
		options: outbox.Options{
			Table: "open_outbox", EventIDType: outbox.UUID, HeadersType: outbox.JSONB, Lengths: outbox.Lengths{EventType: -1, MessageKey: -1},
			Required: outbox.Required{Payload: true, Headers: true},
			Columns:  outbox.Columns{AggregateType: omit, AggregateID: omit, Topic: omit, MessageKey: "partition_key"},
		},
		event: func(e *outbox.Event) { e.Topic = "" },
		want:  `partition_key = 'u-7' AND status = 'PENDING' AND event_type = 'OrderCreated'`,
	},
}

// TestWriter_MapsTablesFoundInTheWild writes one event to each, alone and among others, sees the row,
// and sees a repetition of the id recognised where the table keeps one.
func TestWriter_MapsTablesFoundInTheWild(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, b *base) {
		for _, m := range mappings {
			if m.dialect != b.dialect && (m.dialect != outbox.MySQL || b.dialect != outbox.MariaDB) {
				continue
			}
			t.Run(m.name, func(t *testing.T) { m.test(t, b) })
		}
	})
}

func (m mapping) test(t *testing.T, b *base) {
	own := b.fresh(t) // tables of one name follow one another
	own.exec(t, m.ddl...)
	w := outbox.New(own.dialect, m.options)
	require.NoError(t, w.Err())
	e, other := full(), full()
	other.ID, other.AggregateID, other.Type = "", "0190a0b0-0000-7000-8000-00000000000c", "Other"
	if m.event != nil {
		m.event(&e)
		m.event(&other)
		other.AggregateID = "0190a0b0-0000-7000-8000-00000000000c"
	}
	own.inTx(t, func(ctx context.Context, tx *sql.Tx) {
		require.NoError(t, w.Write(ctx, tx, e))
		require.NoError(t, w.Write(ctx, tx, other, other))
	})
	table, err := own.dialect.QuoteTable(m.options.Table)
	if m.options.Table == "" {
		table, err = "outbox_events", nil
	}
	require.NoError(t, err)
	require.Equal(t, 3, one[int](t, own, "SELECT count(*) FROM "+table))
	require.GreaterOrEqual(t, one[int](t, own, "SELECT count(*) FROM "+table+" WHERE "+m.want), 1)
	if m.options.Columns.EventID == omit {
		return
	}
	tx, err := own.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	err = w.Write(t.Context(), tx, e)
	require.ErrorIs(t, err, outbox.ErrDuplicateEvent)
	require.True(t, strings.Contains(err.Error(), e.ID), err.Error())
}

// TestWriter_QualifiedTable writes to a table of another schema than the connection's.
func TestWriter_QualifiedTable(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, b *base) {
		schema := b.name
		if b.dialect == outbox.SQLite {
			schema = "main"
		}
		b.apply(t)
		elsewhere := b.fresh(t)
		if b.dialect == outbox.SQLite {
			elsewhere = b
		}
		w := outbox.New(b.dialect, outbox.Options{Table: schema + ".outbox_events"})
		elsewhere.inTx(t, func(ctx context.Context, tx *sql.Tx) {
			require.NoError(t, w.Write(ctx, tx, order("e-71")))
			if b.dialect != outbox.Postgres { // which the error would abort
				require.ErrorIs(t, w.Write(ctx, tx, order("e-71")), outbox.ErrDuplicateEvent)
			}
		})
		require.Equal(t, 1, one[int](t, b, "SELECT count(*) FROM outbox_events"))
	})
}
