module example.com/outcomes

go 1.25.0
