//go:build unix

package crashtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// shares is what the cluster says of the lanes' owners.
type shares struct {
	stable bool
	lanes  map[string]int // by member: how many it has
	err    error
}

// shares asks the group.
func (w *world) shares(t testing.TB) shares {
	groups, err := w.topics.admin.DescribeGroups(t.Context(), w.control())
	group := groups[w.control()]
	s := shares{stable: group.State == "Stable", lanes: map[string]int{}, err: err}
	for _, m := range group.Members {
		n := 0
		if got, ok := m.Assigned.AsConsumer(); ok {
			for _, topic := range got.Topics {
				n += len(topic.Partitions)
			}
		}
		s.lanes[m.ClientID] = n
	}
	return s
}

func (s shares) total() (n int) {
	for _, lanes := range s.lanes {
		n += lanes
	}
	return n
}

func (s shares) String() string {
	return strings.TrimPrefix(fmt.Sprintf("stable %t, lanes %v (%v)", s.stable, s.lanes, s.err), "map")
}

// divided waits until each of the relays has so many lanes.
func (w *world) divided(t testing.TB, want ...int) {
	t.Helper()
	var s shares
	eventually(t, 60*time.Second, func() bool {
		s = w.shares(t)
		var have []int
		for _, lanes := range s.lanes {
			have = append(have, lanes)
		}
		slices.Sort(have)
		return s.stable && slices.Equal(have, want)
	}, s.String)
}
