package postgres

import (
	"cmp"
	"slices"
)

// span is a range of ids, both ends included.
type span struct{ lo, hi int64 }

// spans is a set of ids as ascending ranges that neither overlap nor touch.
type spans []span

// newSpans makes a set of ranges in any order.
func newSpans(all []span) spans {
	slices.SortFunc(all, func(a, b span) int { return cmp.Compare(a.lo, b.lo) })
	var out spans
	for _, s := range all {
		if n := len(out); n > 0 && s.lo <= out[n-1].hi+1 {
			out[n-1].hi = max(out[n-1].hi, s.hi)
			continue
		}
		out = append(out, s)
	}
	return out
}

// union returns the ids of both sets.
func (s spans) union(t spans) spans {
	switch {
	case len(s) == 0:
		return t
	case len(t) == 0:
		return s
	case t[0].lo > s[len(s)-1].hi+1: // the usual case: newer ids
		return append(slices.Clip(s), t...)
	}
	return newSpans(slices.Concat(s, t))
}

// index finds the first range that ends at id or later.
func (s spans) index(id int64) int {
	i, _ := slices.BinarySearchFunc(s, id, func(r span, id int64) int { return cmp.Compare(r.hi, id) })
	return i
}

func (s spans) has(id int64) bool {
	i := s.index(id)
	return i < len(s) && s[i].lo <= id
}

// ofIDs makes a set of single ids in any order.
func ofIDs(ids []int64) spans {
	all := make([]span, len(ids))
	for i, id := range ids {
		all[i] = span{id, id}
	}
	return newSpans(all)
}

// both returns the ids that are in s and in t.
func (s spans) both(t spans) spans {
	var out spans
	for len(s) > 0 && len(t) > 0 {
		if lo, hi := max(s[0].lo, t[0].lo), min(s[0].hi, t[0].hi); lo <= hi {
			out = append(out, span{lo, hi})
		}
		if s[0].hi < t[0].hi {
			s = s[1:]
		} else {
			t = t[1:]
		}
	}
	return out
}

// minus returns the ids of s that are not in t.
func (s spans) minus(t spans) spans {
	var out spans
	for _, r := range s {
		for len(t) > 0 && t[0].hi < r.lo {
			t = t[1:]
		}
		for i := 0; i < len(t) && t[i].lo <= r.hi; i++ {
			if t[i].lo > r.lo {
				out = append(out, span{r.lo, t[i].lo - 1})
			}
			r.lo = t[i].hi + 1
		}
		if r.lo <= r.hi {
			out = append(out, r)
		}
	}
	return out
}

// upTo returns the ids of s that are not above id.
func (s spans) upTo(id int64) spans {
	i := s.index(id)
	out := slices.Clip(s[:i])
	if i < len(s) && s[i].lo <= id {
		out = append(out, span{s[i].lo, id})
	}
	return out
}

// coarse returns a set that has all ids of s in at most n ranges, by joining the nearest neighbours. What it
// has beyond s costs a look at rows that are done.
func (s spans) coarse(n int) spans {
	for reach := int64(2); len(s) > n && reach > 0; reach *= 2 {
		out := s[:0:0]
		for _, r := range s {
			if k := len(out); k > 0 && r.lo-out[k-1].hi <= reach {
				out[k-1].hi = r.hi
				continue
			}
			out = append(out, r)
		}
		s = out
	}
	return s
}

// missing returns the ids between after and the last of ids that are not among the ascending ids.
func missing(after int64, ids []int64) spans {
	var out spans
	for _, id := range ids {
		if id > after+1 {
			out = append(out, span{after + 1, id - 1})
		}
		after = max(after, id)
	}
	return out
}
