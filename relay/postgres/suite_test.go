package postgres

import (
	"testing"

	"github.com/postrider/postrider/relay/relaytest"
)

// shapes are the tables that the suite runs on.
func shapes() []shape {
	return []shape{
		{name: "own", ddl: ownDDL(), table: ownTable(), traits: relaytest.Traits{NullPayload: true, HeadersJSON: true}},
		{name: "article", ddl: articleDDL, table: articleTable(), traits: relaytest.Traits{
			NoMessageKey: true, NoTopic: true, NoLastError: true, NoReceipt: true, HeadersJSON: true,
			NormalizesHeaders: true, NormalizesPayload: true, JSONPayload: true,
		}},
	}
}

func TestStore_Conformance(t *testing.T) {
	t.Parallel()
	for _, sh := range shapes() {
		t.Run(sh.name, func(t *testing.T) {
			t.Parallel()
			eachServer(t, func(t *testing.T, url string) { relaytest.RunStore(t, sh.harness(url)) })
		})
	}
}
