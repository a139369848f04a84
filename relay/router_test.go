package relay

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseTemplate(t *testing.T) {
	t.Parallel()
	key := "tenant-7"
	e := &Event{AggregateType: "order", AggregateID: "o-1", Type: "OrderCreated", Key: &key}
	for text, want := range map[string]string{
		"${aggregate_type}-events":                "order-events",
		"a.${event_type}.${aggregate_id}.b":       "a.OrderCreated.o-1.b",
		"${message_key}":                          "tenant-7",
		"plain":                                   "plain",
		"$5 {x}":                                  "$5 {x}",
		"${aggregate_type}${aggregate_type}":      "orderorder",
		"pre-${aggregate_type}-mid-${event_type}": "pre-order-mid-OrderCreated",
	} {
		tpl, err := ParseTemplate(text)
		require.NoError(t, err, text)
		require.Equal(t, want, tpl.Expand(e), text)
		require.Equal(t, text, tpl.String())
		require.False(t, tpl.Empty())
	}
	require.True(t, Template{}.Empty())
	require.Empty(t, Template{}.Expand(e))
	require.Empty(t, MustTemplate("${message_key}").Expand(&Event{}), "no key, no text")
}

func TestParseTemplate_Errors(t *testing.T) {
	t.Parallel()
	_, err := ParseTemplate("x-${aggregat_type}")
	require.EqualError(t, err, `template "x-${aggregat_type}": unknown variable ${aggregat_type}, use one of ${aggregate_type}, ${aggregate_id}, ${event_type}, ${message_key}`)
	_, err = ParseTemplate("x-${event_type")
	require.EqualError(t, err, `template "x-${event_type": "${" is not closed by "}"`)
	require.Panics(t, func() { MustTemplate("${") })
}

func TestTemplate_Static(t *testing.T) {
	t.Parallel()
	text, static := MustTemplate("orders").Static()
	require.True(t, static)
	require.Equal(t, "orders", text)
	_, static = MustTemplate("${event_type}").Static()
	require.False(t, static)
	_, static = Template{}.Static()
	require.False(t, static)
}

func TestRouter_Route(t *testing.T) {
	t.Parallel()
	three, key := int32(3), "k"
	r := Router{
		Routes: []Route{
			{AggregateType: "order", EventType: "OrderCancelled", Topic: MustTemplate("cancelled"), Partition: &three},
			{AggregateType: "order", Topic: MustTemplate("orders.${event_type}"), Key: MustTemplate("${aggregate_id}/x")},
			{EventType: "Ping", Topic: MustTemplate("pings")},
			{AggregateType: "audit", Partition: &three},
		},
		Default: MustTemplate(DefaultTopic),
	}
	for _, c := range []struct {
		name      string
		e         Event
		topic     string
		key       string
		partition *int32
	}{
		{"the first match decides", Event{AggregateType: "order", Type: "OrderCancelled"}, "cancelled", key, &three},
		{"a template over the event, and a key", Event{AggregateType: "order", Type: "OrderCreated", AggregateID: "7"}, "orders.OrderCreated", "7/x", nil},
		{"by event type alone", Event{AggregateType: "any", Type: "Ping"}, "pings", key, nil},
		{"no match takes the default", Event{AggregateType: "invoice", Type: "Paid"}, "invoice-events", key, nil},
		{"the row's topic goes before routes", Event{AggregateType: "order", Type: "OrderCancelled", Topic: "mine"}, "mine", key, nil},
		{"a route without a topic adds its partition", Event{AggregateType: "audit", Type: "x", Topic: "mine"}, "mine", key, &three},
	} {
		c.e.Key = &key
		d, failure := r.Route(&c.e)
		require.Nil(t, failure, c.name)
		require.Equal(t, c.topic, d.Topic, c.name)
		require.Equal(t, c.key, *d.Key, c.name)
		require.Equal(t, c.partition, d.Partition, c.name)
	}
	d, failure := r.Route(&Event{AggregateType: "invoice"})
	require.Nil(t, failure)
	require.Nil(t, d.Key, "a row without key makes a record without key")
}

func TestRouter_IllegalTopics(t *testing.T) {
	t.Parallel()
	r := Router{Default: MustTemplate(DefaultTopic)}
	for topic, why := range map[string]string{
		".":                       "is reserved",
		"..":                      "is reserved",
		"a b":                     `holds ' '`,
		"größe":                   `holds 'ö'`,
		"a/b":                     `holds '/'`,
		"a\x00b":                  `holds '\x00'`,
		"\xff":                    "holds",
		strings.Repeat("x", 250):  "longer than 249",
		strings.Repeat("é", 200):  "longer than 249",
		strings.Repeat("x ", 100): `holds ' '`,
	} {
		_, failure := r.Route(&Event{Topic: topic})
		require.NotNil(t, failure, topic)
		require.Equal(t, ClassPermanent, failure.Class)
		require.Equal(t, "INVALID_TOPIC_EXCEPTION", failure.Code)
		require.Contains(t, failure.Text, why)
		require.Less(t, len(failure.Text), 250, "names are clipped")
		require.NotEmpty(t, failure.Hint)
	}
	for _, topic := range []string{"a", "...", "A-Z_0.9", strings.Repeat("x", 249)} {
		_, failure := r.Route(&Event{Topic: topic})
		require.Nil(t, failure, topic)
	}
	_, failure := (&Router{}).Route(&Event{})
	require.Contains(t, failure.Text, "is empty")
	_, failure = r.Route(&Event{AggregateType: "Ordre é"})
	require.NotNil(t, failure, "the default template can make illegal names too")
}

func TestClip(t *testing.T) {
	t.Parallel()
	require.Equal(t, "abc", clip("abc", 3))
	require.Equal(t, "ab…", clip("abcd", 2))
	require.Equal(t, "a…", clip("aéé", 2), "not in the middle of a rune")
	require.Equal(t, "…", clip("é", 1))
}
