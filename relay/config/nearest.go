package config

import "strings"

// Nearest returns the candidate that is most like name, or "" when none is near: at most a third of
// its letters, and no more than four, have to change. Case and the choice between "_", "-" and "."
// do not count.
func Nearest(name string, candidates []string) string {
	best, bestDistance := "", 0
	plain := plainName(name)
	for _, c := range candidates {
		d := distance(plain, plainName(c))
		if d <= min(4, max(1, len(c)/3)) && (best == "" || d < bestDistance) {
			best, bestDistance = c, d
		}
	}
	return best
}

var separators = strings.NewReplacer("-", "_", ".", "_")

func plainName(s string) string { return separators.Replace(strings.ToLower(s)) }

// distance counts the edits between two names: letters put in, left out, changed, or two neighbours
// swapped. Names longer than 64 bytes are as far as can be.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	var before, last, row [65]int
	for j := range len(b) + 1 {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
