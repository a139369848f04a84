package kafka

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/postrider/postrider/relay"
)

// TestGroup_ControlDeleted: the control topic is deleted while two relays share lanes by it. They make it anew, whoever
// of them is first, share all lanes again, and send in them; also when somebody else has made it before they looked.
func TestGroup_ControlDeleted(t *testing.T) {
	t.Parallel()
	for name, remade := range map[string]bool{"missing": false, "made anew": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachGroup(t, func(t *testing.T, p groupPlace) { controlDeleted(t, p, remade) })
		})
	}
}

func controlDeleted(t *testing.T, p groupPlace, remade bool) {
	const lanes = 4
	o := GroupOptions{Name: p.name, Table: "t", Lanes: lanes, Flows: 1, GiveTimeout: 5 * time.Second}
	topic := newTopic(t, p.seed, 1, nil)
	all := &ownership{owner: map[int32]string{}}
	relays := []*running{p.start(t, o, newKeeper(t, all, "a"), Options{}), p.start(t, o, newKeeper(t, all, "b"), Options{})}
	share := func() bool { return all.has("a") == lanes/2 && all.has("b") == lanes/2 }
	until(t, 30*time.Second, "they share", share)
	sinks := []*Transactions{openTx(t, p.seed, relays[0], Options{}), openTx(t, p.seed, relays[1], Options{})}
	sent := func(value string) (n int) {
		for i, g := range relays {
			for lane := range int32(lanes) {
				if g.owns(lane) {
					if r := sendTx(t, sinks[i], row(topic, fmt.Sprint(lane), value, lane))[0]; r.Failure == nil {
						r.Marked()
						n++
					} else {
						require.NotContains(t, r.Failure.Hint, "--partitions 12", "advice for topics of events")
						require.NotEqual(t, relay.ClassPermanent, r.Failure.Class)
					}
				}
			}
		}
		return n
	}
	until(t, 10*time.Second, "all lanes are sent in", func() bool { return sent("before") == lanes })

	adm := admin(t, p.seed)
	old, err := adm.ListTopics(t.Context(), relays[0].topic)
	require.NoError(t, err)
	began := time.Now()
	_, err = adm.DeleteTopics(t.Context(), relays[0].topic)
	require.NoError(t, err)
	if remade {
		until(t, 10*time.Second, "made anew", func() bool {
			settings := map[string]*string{"cleanup.policy": new("compact")}
			made, err := adm.CreateTopic(t.Context(), lanes, 1, settings, relays[0].topic)
			return err == nil || errors.Is(made.Err, kerr.TopicAlreadyExists)
		})
	}
	if !remade {
		_, err = DescribeLanes(t.Context(), parsed(t, properties(p.seed)), p.name)
		var missing *NoControlTopicError
		if errors.As(err, &missing) { // unless they were faster
			require.Equal(t, 2, missing.Relays)
			require.ErrorContains(t, err, "was deleted under the relays that share lanes by it (2 run)")
		}
	}
	known := func(g *running) bool {
		now, err := adm.ListTopics(t.Context(), g.topic)
		require.NoError(t, err)
		_, id := g.control()
		return now[g.topic].Err == nil && [16]byte(now[g.topic].ID) == id && id != [16]byte(old[g.topic].ID)
	}
	until(t, 20*time.Second, "both know the new topic", func() bool { return known(relays[0]) && known(relays[1]) })
	until(t, 20*time.Second, "all lanes are sent in again", func() bool { return share() && sent("after") == lanes })
	t.Log("all lanes are sent in again after", time.Since(began))
}

// TestDescribeLanes_NoTopic: nobody can know whether there never was a topic, or it was deleted, once all relays are gone.
func TestDescribeLanes_NoTopic(t *testing.T) {
	t.Parallel()
	_, err := DescribeLanes(t.Context(), parsed(t, properties(cluster(t).ListenAddrs()[0])), "shop")
	require.EqualError(t, err, "the cluster has no topic shop.postrider: no relay has shared this outbox by lanes yet, or the topic was deleted; the first relay makes it")
}

// TestTransactions_AsksInADeletedTopic: what became of a transaction cannot be found out in a topic that is gone. It is taken
// for not committed, and the flow goes on.
func TestTransactions_AsksInADeletedTopic(t *testing.T) {
	t.Parallel()
	seed := cluster(t).ListenAddrs()[0]
	g := newLanes(t, seed, 1)
	s := openTx(t, seed, g, Options{})
	wellSent(t, sendTx(t, s, row(newTopic(t, seed, 1, nil), "k", "v", 0)))
	x := &transaction{id: "of-before", noteID: [16]byte{1}, notes: []sending{{}}}
	x.notes[0].rec.Offset = 1000
	there, err := s.ask(t.Context(), x)
	require.NoError(t, err)
	require.False(t, there)
}
