module example.com/claim

go 1.26.0
