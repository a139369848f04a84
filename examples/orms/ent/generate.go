// Package ent is the client that ent's code generator makes from the entities in ent/schema.
package ent

// The feature sql/execquery gives ent's transaction the method ExecContext, which the writer needs.
//go:generate go run -mod=mod entgo.io/ent/cmd/ent generate --feature sql/execquery ./schema
