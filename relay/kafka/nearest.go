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

// edits is the Levenshtein distance, kept as one row.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := diagonal
			if a[i-1] != b[j-1] {
				change++
			}
			diagonal = row[j]
			row[j] = min(change, row[j]+1, row[j-1]+1)
		}
	}
	return row[len(b)]
}
