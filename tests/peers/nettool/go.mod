module bulkhead.test/nettool

go 1.26
