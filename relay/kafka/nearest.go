package kafka

import "strings"

// nearest returns the known property whose name takes the fewest edits from name, or "" when none
// is near: at most a third of its letters may differ, and no more than four. Case and the choice of
// separator do not count.
func nearest(name string) string {
	best, least := "", 0
	for _, p := range Properties() {
		d := edits(plainName(name), plainName(p.Name))
		if d <= min(4, max(1, len(p.Name)/3)) && (best == "" || d < least) {
			best, least = p.Name, d
		}
	}
	return best
}

var separators = strings.NewReplacer("_", ".", "-", ".")

func plainName(name string) string { return separators.Replace(strings.ToLower(name)) }

// edits counts the edits between two names: letters put in, left out, changed, or two neighbours
// swapped.
func edits(a, b string) int {
	row, last, before := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row, last, before = before, row, last
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := last[j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			row[j] = min(change, last[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return row[len(b)]
}
