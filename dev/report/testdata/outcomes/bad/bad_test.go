package bad

import "testing"

func TestFails(t *testing.T) { t.Error("the reason why it failed") }

func TestPasses(t *testing.T) { t.Log("said by a test that passed") }
