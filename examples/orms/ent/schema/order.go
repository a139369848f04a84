// Package schema describes the service's entities to ent's code generator.
package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/schema/field"
)

// Order is the business row that the examples write beside its event.
type Order struct{ ent.Schema }

// Fields lists the columns.
func (Order) Fields() []ent.Field {
	return []ent.Field{field.String("no").Unique()}
}
