package state

// testShare returns a share of alice's bucket "one" that reads and writes under prefixes.
func testShare(prefixes ...string) Share {
	return Share{
		ID: "0123456789abcdef0123456789abcdef", Account: alice, Bucket: "one", Key: "sharekey", Name: "for Ann", Prefixes: prefixes,
		Read: true, Write: true, Created: 5,
	}
}
