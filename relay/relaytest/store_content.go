package relaytest

import (
	"fmt"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

func contentCases() []storeCase {
	noHeaders := func(tr Traits) bool { return tr.NoHeaders }
	return []storeCase{
		{name: "headers keep their order, and other values come as JSON", run: contentHeaders, skip: noHeaders},
		{name: "headers may be absent", run: contentNoHeaders, skip: noHeaders},
		{name: "Case_D01 malformed headers are named with their position", run: contentMalformed,
			skip: func(tr Traits) bool { return tr.NoHeaders || tr.HeadersJSON }},
		{name: "Case_D01 headers that are no object are malformed", run: contentNotObject, skip: noHeaders},
		{name: "Case_W04 payload bytes are as the column holds them", run: contentPayload},
		{name: "Case_W05 digits are not touched", run: contentDigits},
		{name: "payloads of any bytes", run: contentBinary,
			skip: func(tr Traits) bool { return tr.JSONPayload || tr.TextPayload }},
		{name: "a NULL payload is a tombstone, an empty one is not", run: contentTombstone,
			skip: func(tr Traits) bool { return !tr.NullPayload }},
		{name: "names of any letters come as written", run: contentUnicode},
	}
}

func (b *bed) one(row NewRow) relay.Event {
	b.Helper()
	b.commit(row)
	c := b.open()
	evs := c.fetchEvents(10, 1<<24)
	require.Len(b, evs, 1)
	if !b.h.Traits.NoStatus { // there a sent row is deleted, and the case wants to look at it
		c.sent(evs[0].ID)
	}
	require.NoError(b, c.Close())
	return evs[0]
}

func contentHeaders(b *bed) {
	row := event("e1", "K")
	row.Headers = `{"z":"last first","a":"é\u00e9\n","n":12345678901234567890.10,"t":true,"o":{"b":[1, 2]},"nil":null}`
	got := map[string]string{}
	var order []string
	for _, h := range b.one(row).Headers {
		got[h.Name] = string(h.Value)
		order = append(order, h.Name)
	}
	require.Equal(b, "last first", got["z"])
	require.Equal(b, "éé\n", got["a"], "strings come decoded")
	require.Equal(b, "12345678901234567890.10", got["n"], "numbers as they are")
	require.Equal(b, "true", got["t"])
	require.JSONEq(b, `{"b":[1,2]}`, got["o"])
	require.Equal(b, "null", got["nil"])
	if !b.h.Traits.NormalizesHeaders {
		require.Equal(b, []string{"z", "a", "n", "t", "o", "nil"}, order)
		require.Equal(b, `{"b":[1, 2]}`, got["o"], "as written")
		row := event("e2", "K")
		row.Headers = `{"x":"1","x":"2"}`
		require.Equal(b, []relay.Header{{Name: "x", Value: []byte("1")}, {Name: "x", Value: []byte("2")}},
			b.one(row).Headers, "names may repeat")
	}
}

func contentNoHeaders(b *bed) {
	for i, text := range []string{"", "{}", "null"} {
		row := event(fmt.Sprintf("e%d", i), "K")
		row.Headers = text
		e := b.one(row)
		require.NoError(b, e.Malformed)
		require.Empty(b, e.Headers)
	}
}

func contentMalformed(b *bed) {
	bad := event("bad", "K")
	bad.Headers = `{"a":"b","c":x}`
	b.commit(bad)
	cut := event("cut", "M")
	cut.Headers = `{"a":"b`
	b.commit(cut, event("good", "L"))
	c := b.open()
	require.ElementsMatch(b, []string{"bad", "cut", "good"}, c.fetch(), "a malformed row does not hold the others")
	require.EqualError(b, c.take("bad").Malformed, "headers: invalid JSON at 14")
	require.EqualError(b, c.take("cut").Malformed, "headers: invalid JSON at 8")
	require.NoError(b, c.take("good").Malformed)
	c.settle(c.outcome("bad", relay.StateDead, func(o *relay.Outcome) { o.LastError = "headers: invalid JSON at 14" }),
		c.outcome("good", relay.StateSent))
}

func contentNotObject(b *bed) {
	for i, text := range []string{`["secret-value"]`, `"secret-value"`, `17`} {
		row := event(fmt.Sprintf("e%d", i), "K")
		row.Headers = text
		e := b.one(row)
		require.Error(b, e.Malformed)
		require.Contains(b, e.Malformed.Error(), "headers")
		require.NotContains(b, e.Malformed.Error(), "secret-value", "values never appear in errors")
	}
}

func contentPayload(b *bed) {
	row := event("e1", "K")
	row.Payload = []byte(`{"b":1, "a":2,"b":3, "amt": 10.50}`)
	e := b.one(row)
	require.Equal(b, string(b.row("e1").Payload), string(e.Payload), "the column's own text, nothing re-encoded")
	if !b.h.Traits.NormalizesPayload {
		require.Equal(b, string(row.Payload), string(e.Payload))
	}
}

func contentDigits(b *bed) {
	row := event("e1", "K")
	row.Payload = []byte(`{"account":1234567890123456789,"p":1.10,"wei":19876543210987654321}`)
	got := string(b.one(row).Payload)
	require.Equal(b, string(b.row("e1").Payload), got)
	require.Contains(b, got, "1234567890123456789")
	if !b.h.Traits.NormalizesPayload { // a database may keep numbers as doubles in a JSON type of its own
		require.Equal(b, string(row.Payload), got)
	}
}

func contentBinary(b *bed) {
	all := make([]byte, 512)
	for i := range all {
		all[i] = byte(i)
	}
	row := event("e1", "K")
	row.Payload = all
	require.Equal(b, all, b.one(row).Payload)
}

func contentTombstone(b *bed) {
	b.commit(NewRow{EventID: "none", AggregateID: "K", Tombstone: true})
	c := b.open()
	require.Equal(b, []string{"none"}, c.fetch())
	require.Nil(b, c.take("none").Payload)
	if b.h.Traits.JSONPayload {
		return
	}
	b.commit(NewRow{EventID: "empty", AggregateID: "K", Payload: []byte{}})
	require.Equal(b, []string{"empty"}, c.fetch())
	require.NotNil(b, c.take("empty").Payload)
	require.Empty(b, c.take("empty").Payload)
}

func contentUnicode(b *bed) {
	row := NewRow{EventID: "e-ü-1", AggregateType: "größe", AggregateID: "键/'\"\\%_", Type: "T 😀", Payload: []byte(`{"t":"😀"}`)}
	e := b.one(row)
	require.Equal(b, row.EventID, e.ID)
	require.Equal(b, row.AggregateType, e.AggregateType)
	require.Equal(b, row.AggregateID, e.AggregateID)
	require.Equal(b, row.Type, e.Type)
	require.True(b, strings.Contains(string(e.Payload), "😀"))
}
