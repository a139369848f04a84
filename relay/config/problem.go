package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Origin says where a value came from.
type Origin struct {
	// Source is the file as it was named, "POSTRIDER_…" for a variable, "--…" for a flag, "preset …",
	// or "default".
	Source string
	// Line and Column are the place in a file, counted from 1; 0 elsewhere.
	Line, Column int

	rank int // strength: a later source wins
}

const (
	rankDefault = iota
	rankPreset
	rankFile
	rankEnviron
	rankFlag
)

// String gives file:line:column, or the source's name.
func (o Origin) String() string {
	if o.Line == 0 {
		return o.Source
	}
	return fmt.Sprintf("%s:%d:%d", o.Source, o.Line, o.Column)
}

// given says whether a person stated the value, rather than a default or a preset.
func (o Origin) given() bool { return o.rank >= rankFile }

// Problem is one thing that is wrong with the configuration. No part of it holds a secret.
type Problem struct {
	Where  Origin
	Key    string // the key's path; empty when the trouble is not with one key
	Reason string
	Next   string // the next step; may be empty
}

// Error is one line: where, key, reason, next step.
func (p Problem) Error() string {
	var b strings.Builder
	if where := p.Where.String(); where != "" {
		b.WriteString(where + ": ")
	}
	if p.Key != "" && !strings.HasSuffix(p.Where.Source, " "+p.Key) {
		b.WriteString(p.Key + ": ")
	}
	b.WriteString(p.Reason)
	if p.Next != "" {
		b.WriteString("; " + p.Next)
	}
	return b.String()
}

// Problems is every problem of a configuration, in the order of the sources. As an error it is one
// line a problem.
type Problems []Problem

// Error joins the problems' lines.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}

// sorted orders problems for reading: the file from top to bottom, then variables, flags, and what
// is missing.
func (ps Problems) sorted() Problems {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		ra, rb := a.Where.rank, b.Where.rank
		if ra < rankFile {
			ra = rankFlag + 1
		}
		if rb < rankFile {
			rb = rankFlag + 1
		}
		return cmp.Or(cmp.Compare(ra, rb), cmp.Compare(a.Where.Line, b.Where.Line),
			cmp.Compare(a.Where.Column, b.Where.Column), cmp.Compare(a.Where.Source, b.Where.Source),
			cmp.Compare(a.Key, b.Key))
	})
	return slices.Compact(ps)
}
