package outbox

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestWriter_Write_RefusesBeforeTheStatement(t *testing.T) {
	t.Parallel()
	jsonb := Options{PayloadType: JSONB, HeadersType: JSONB}
	for _, c := range []struct {
		name    string
		dialect Dialect
		options Options
		change  func(*Event)
		want    string // the whole text after "event 1"
	}{
		{
			"TestCase_W02 NUL in jsonb", Postgres, jsonb,
			func(e *Event) { e.Payload = []byte(`{"note":"a\u0000b"}`) },
			` (id e-71): Payload, column payload, byte 10: U+0000 cannot be stored in jsonb; use bytea or json/text`,
		},
		{
			"TestCase_W02 surrogate in jsonb", Postgres, jsonb,
			func(e *Event) { e.Payload = []byte(`{"note":"\ud83d"}`) },
			` (id e-71): Payload, column payload, byte 9: unpaired surrogate cannot be stored in jsonb; use bytea or json/text`,
		},
		{
			"TestCase_W02 raw NUL in text", Postgres, Options{PayloadType: Text},
			func(e *Event) { e.Payload = []byte("a\x00b") },
			` (id e-71): Payload, column payload, byte 1: U+0000 cannot be stored in text; use bytea`,
		},
		{
			"no JSON", Postgres, Options{PayloadType: JSON, Columns: Columns{Payload: "body"}},
			func(e *Event) { e.Payload = []byte(`{"a":secret}`) },
			` (id e-71): Payload, column body, byte 5: not valid JSON: a value must begin here; use bytea or text for other formats`,
		},
		{
			"broken text", MySQL, Options{PayloadType: Text},
			func(e *Event) { e.Payload = []byte("ok\xff") },
			` (id e-71): Payload, column payload, byte 2: not valid UTF-8; use LONGBLOB`,
		},
		{
			"payload too large", SQLite, Options{MaxPayloadBytes: 7},
			func(e *Event) { e.Payload = []byte("12345678") },
			` (id e-71): Payload, column payload: has 8 bytes and the limit is 7; send less, or raise Options.MaxPayloadBytes and the limits of the database and the topic`,
		},
		{
			"payload required", Postgres, ArticlePostgres(), func(e *Event) { e.Payload = nil },
			` (id e-71): Payload, column payload: is missing and the column takes no NULL; set it`,
		},
		{
			"topic required", MySQL, ArticleMySQL(), func(*Event) {},
			` (id e-71): Topic, column topic: is missing and the column takes no NULL; set it`,
		},
		{
			"no topic column", Postgres, ArticlePostgres(), func(e *Event) { e.Topic = "orders" },
			` (id e-71): Topic: the table has no column for it; leave it empty, or name the column in Options.Columns`,
		},
		{
			"no key column", Postgres, ArticlePostgres(), func(e *Event) { e.Key = []byte{} },
			` (id e-71): Key: the table has no column for it; leave it empty, or name the column in Options.Columns`,
		},
		{
			"no headers column", Postgres, Debezium(),
			func(e *Event) { e.ID, e.Headers = "0190a0b0-0000-7000-8000-00000000000A", map[string]string{"a": "b"} },
			` (id 0190a0b0-0000-7000-8000-00000000000a): Headers: the table has no column for it; leave it empty, or name the column in Options.Columns`,
		},
		{
			"no UUID", Postgres, Debezium(), func(*Event) {},
			`: ID, column id: is not a UUID, which the column takes alone; leave it empty, or use outbox.NewID`,
		},
		{
			"empty name", Postgres, Options{}, func(e *Event) { e.AggregateID = "" },
			` (id e-71): AggregateID, column aggregate_id: is empty; set it, or map the column to "-" where the table has none`,
		},
		{
			"long name in characters", Postgres, Options{}, func(e *Event) { e.Type = strings.Repeat("é", 256) },
			` (id e-71): Type, column event_type: has 256 characters and the column takes 255; shorten it, or widen the column and set Options.Lengths`,
		},
		{
			"long id", Postgres, Options{}, func(e *Event) { e.ID = strings.Repeat("x", 65) },
			`: ID, column event_id: has 65 characters and the column takes 64; shorten it, or widen the column and set Options.Lengths`,
		},
		{
			"control character", Postgres, Options{}, func(e *Event) { e.AggregateType = "Or\nder" },
			` (id e-71): AggregateType, column aggregate_type, byte 2: control character U+000A; names are printable text`,
		},
		{
			"broken name", Postgres, Options{}, func(e *Event) { e.AggregateType = "Or\xffder" },
			` (id e-71): AggregateType, column aggregate_type, byte 2: not valid UTF-8; names are UTF-8 text`,
		},
		{
			"topic character", Postgres, Options{}, func(e *Event) { e.Topic = "orders/new" },
			` (id e-71): Topic, column topic, byte 6: is not a topic name; Kafka takes 1 to 249 of the characters a-z A-Z 0-9 . _ - and neither . nor .. alone`,
		},
		{
			"topic of dots", Postgres, Options{}, func(e *Event) { e.Topic = ".." },
			` (id e-71): Topic, column topic: is not a topic name; Kafka takes 1 to 249 of the characters a-z A-Z 0-9 . _ - and neither . nor .. alone`,
		},
		{
			"topic length of the table", MySQL, ArticleMySQL(), func(e *Event) { e.Topic = strings.Repeat("t", 129) },
			` (id e-71): Topic, column topic: has 129 characters and the column takes 128; shorten it, or widen the column and set Options.Lengths`,
		},
		{
			"NUL in a key", SQLite, Options{}, func(e *Event) { e.Key = []byte("a\x00") },
			` (id e-71): Key, column message_key, byte 1: U+0000 cannot be stored in text; encode it as text, or use a binary column and Options.KeyType`,
		},
		{
			"long binary key", Postgres, Options{KeyType: Bytes, Lengths: Lengths{MessageKey: 4}}, func(e *Event) { e.Key = []byte("12345") },
			` (id e-71): Key, column message_key: has 5 bytes and the column takes 4; shorten it, or widen the column and set Options.Lengths`,
		},
		{
			"empty header name", Postgres, Options{}, func(e *Event) { e.Headers = map[string]string{"": "x"} },
			` (id e-71): Headers[""], column headers: the name is empty; name it, or leave it out`,
		},
		{
			"reserved header", Postgres, Options{}, func(e *Event) { e.Headers = map[string]string{"event_id": "x"} },
			` (id e-71): Headers["event_id"], column headers: the name is the relay's, which fills it from the row; rename it, or set the event's field`,
		},
		{
			"binary header", Postgres, Options{}, func(e *Event) { e.Headers = map[string]string{"sig": "secret\xfe"} },
			` (id e-71): Headers["sig"], column headers, byte 6: the value is not valid UTF-8; encode binary values, for example in base64`,
		},
		{
			"NUL in a header of jsonb", Postgres, jsonb, func(e *Event) { e.Headers = map[string]string{"sig": "secret\x00"} },
			` (id e-71): Headers["sig"], column headers, byte 6: U+0000 cannot be stored in jsonb; use json/text`,
		},
		{
			"large headers", Postgres, Options{}, func(e *Event) { e.Headers = map[string]string{"sig": strings.Repeat("x", 65536)} },
			` (id e-71): Headers, column headers: have 65546 bytes and the limit is 65535; carry less, or move it to the payload`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			tx := &recorder{}
			good, bad := order(NewID()), order("e-71")
			if c.options.Required.Topic {
				good.Topic = "orders"
			}
			c.change(&bad)
			err := New(c.dialect, c.options).Write(t.Context(), tx, good, bad)
			var invalid *ValidationError
			if !errors.As(err, &invalid) {
				t.Fatalf("got %v", err)
			}
			if err.Error() != "event 1"+c.want {
				t.Errorf("got  %s\nwant event 1%s", err, c.want)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Error("a value leaked into the error")
			}
			if len(tx.queries) > 0 {
				t.Error("a statement was sent")
			}
		})
	}
}

func TestWriter_Write_TakesWhatTheColumnTakes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		dialect Dialect
		options Options
		payload string
	}{
		"any bytes in bytea":      {Postgres, Options{}, "\x00\xff\x01"},
		"escaped NUL in json":     {Postgres, Options{PayloadType: JSON}, `{"note":"a\u0000b","s":"\ud83d"}`},
		"escaped NUL in text":     {Postgres, Options{PayloadType: Text}, `{"note":"a\u0000b"`},
		"an empty value":          {MySQL, Options{}, ""},
		"big numbers in jsonb":    {Postgres, Options{PayloadType: JSONB}, `{"wei":19876543210987654321,"p":1.10}`},
		"the replacement rune":    {Postgres, Options{PayloadType: Text}, "a\ufffdb"},
		"no limit when negative":  {Postgres, Options{MaxPayloadBytes: -1}, strings.Repeat("x", 9<<20)},
		"escapes below SQLite":    {SQLite, Options{PayloadType: JSON}, `"\u0000\ud83d"`},
		"a JSON scalar":           {MariaDB, Options{PayloadType: JSON}, `1.10`},
		"a number beyond doubles": {MariaDB, Options{PayloadType: JSON}, `19876543210987654321`},
	} {
		tx := &recorder{}
		e := order("e-1")
		e.AggregateID, e.Payload = "o-\ufffd", []byte(c.payload)
		if err := New(c.dialect, c.options).Write(t.Context(), tx, e); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := tx.args[0][6]
		if bytes, ok := got.([]byte); ok {
			got = string(bytes)
		}
		if got != c.payload {
			t.Errorf("%s: stored otherwise than given", name)
		}
	}
}

func TestWriter_Write_SameIDTwice(t *testing.T) {
	t.Parallel()
	tx := &recorder{}
	err := New(Postgres, Options{}).Write(t.Context(), tx, order("e-1"), order("e-2"), order("e-1"))
	var dup *DuplicateError
	if !errors.Is(err, ErrDuplicateEvent) || !errors.As(err, &dup) || !reflect.DeepEqual(dup.EventIDs, []string{"e-1"}) {
		t.Fatal(err)
	}
	if len(tx.queries) > 0 {
		t.Error("a statement was sent")
	}
}

func TestWriter_Write_BinaryUUID(t *testing.T) {
	t.Parallel()
	tx := &recorder{}
	e := order("0190a0b0-0000-7000-8000-00000000000A")
	if err := New(MySQL, Options{EventIDType: UUIDBytes}).Write(t.Context(), tx, e); err != nil {
		t.Fatal(err)
	}
	want := []byte{0x01, 0x90, 0xa0, 0xb0, 0, 0, 0x70, 0, 0x80, 0, 0, 0, 0, 0, 0, 0x0a}
	if !reflect.DeepEqual(tx.args[0][0], want) {
		t.Fatalf("%#v", tx.args[0][0])
	}
	for _, bad := range []string{"0190a0b0000070008000-00000000000A---", "0190a0b0-0000-7000-8000-00000000000g", "e-1"} {
		if New(MySQL, Options{EventIDType: UUIDBytes}).Write(t.Context(), tx, order(bad)) == nil {
			t.Errorf("%s passed", bad)
		}
	}
}

// FuzzEncodeHeaders reads back with the standard library what the encoder wrote.
func FuzzEncodeHeaders(f *testing.F) {
	f.Add("source", "order-service", "x", "\"\\\x00\x1f<é\u2028")
	f.Fuzz(func(t *testing.T, n1, v1, n2, v2 string) {
		headers := map[string]string{n1: v1, n2: v2}
		for _, s := range []string{n1, v1, n2, v2} {
			if !utf8.ValidString(s) {
				t.Skip()
			}
		}
		text := encodeHeaders(headers, 16)
		var got map[string]string
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if !reflect.DeepEqual(got, headers) {
			t.Fatalf("%s: %v, want %v", text, got, headers)
		}
		if fault := checkJSON(text, pgJSON); fault != nil {
			t.Fatalf("%s: %+v", text, fault)
		}
	})
}
