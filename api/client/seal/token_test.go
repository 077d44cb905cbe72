package seal

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// at is the time of the tests of tokens.
func at() time.Time { return time.Unix(1_800_000_000, 0).UTC() }

// share returns what the tests share: /photos of bucket "trip", for a day.
func share() Share {
	return Share{Bucket: "trip", PathScope: "/photos", Permissions: ReadOnly(), Created: at(), Expires: at().Add(24 * time.Hour)}
}

func token(t testing.TB, owner *Identity, to PublicIdentity, s Share) *Token {
	t.Helper()
	made, err := owner.NewToken(to, s)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// TestSharedFolder promises that a token opens the objects that were encrypted for its folder, also after the
// token was made, and no other object.
func TestSharedFolder(t *testing.T) {
	owner, recipient := generate(t), generate(t)
	root, err := owner.FolderKey("trip")
	if err != nil {
		t.Fatal(err)
	}
	sealed := func(path string, folder *FolderKey) ([]byte, Header) {
		o := object(5)
		o.Path, o.Folder = path, folder
		ciphertext, h, err := Encrypt(owner.PublicKey(), o, bytesOf(5))
		if err != nil {
			t.Fatal(err)
		}
		return ciphertext, h
	}
	read, err := ParseToken(token(t, owner, recipient.Public(), share()).String())
	if err != nil {
		t.Fatal(err)
	}
	grant, err := read.Open(recipient, at(), owner.Public())
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/photos/a.jpg", "/photos/vacation/2026/b.jpg"} {
		ciphertext, h := sealed(path, &root)
		opener, err := grant.Opener(path)
		if err != nil {
			t.Fatal(err)
		}
		plain, m, err := Decrypt(opener, h, "e/0123", path, ciphertext)
		if err != nil || string(plain) != string(bytesOf(5)) || m.Path != path {
			t.Errorf("%s: %v", path, err)
		}
	}
	_, outside := sealed("/letters/a.txt", &root)
	folder, ok := grant.FolderKey()
	if !ok {
		t.Fatal("the grant is of no folder")
	}
	_, err = Open(folder, outside, "e/0123", Options{})
	want(t, err, ErrWrongKey)
	_, err = folder.Folder("/letters")
	want(t, err, ErrPathScope)
	_, unshared := sealed("/photos/a.jpg", nil)
	_, err = Open(folder, unshared, "e/0123", Options{})
	want(t, err, ErrNoFolderKey)
	elsewhere, err := owner.FolderKey("other-bucket")
	if err != nil {
		t.Fatal(err)
	}
	_, foreign := sealed("/photos/a.jpg", &elsewhere)
	_, err = Open(folder, foreign, "e/0123", Options{})
	want(t, err, ErrWrongKey)
}

// TestSharedObject promises that a token for one object opens this object, allows no other path, and has no
// folder key.
func TestSharedObject(t *testing.T) {
	owner, recipient := generate(t), generate(t)
	ciphertext, h := encrypt(t, owner, 10)
	key := open(t, owner, h).DataKey()
	s := share()
	s.PathScope, s.Object = "/photos/vacation/beach.jpg", &key
	grant, err := token(t, owner, recipient.Public(), s).Open(recipient, at(), owner.Public())
	if err != nil {
		t.Fatal(err)
	}
	opener, err := grant.Opener("/photos/vacation/beach.jpg")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := Decrypt(opener, h, "e/0123", "", ciphertext); err != nil {
		t.Fatal(err)
	}
	_, err = grant.Opener("/photos/vacation/other.jpg")
	want(t, err, ErrPathScope)
	if _, ok := grant.FolderKey(); ok {
		t.Error("a token for one object has a folder key")
	}
}

// TestChecksOfTokens promises that a token opens only for its recipient, in its time give or take a minute, and
// from a known owner, and that the owner is checked before the time.
func TestChecksOfTokens(t *testing.T) {
	owner, recipient, stranger := generate(t), generate(t), generate(t)
	good := token(t, owner, recipient.Public(), share())
	open := func(tok *Token, with *Identity, now time.Time, known ...PublicIdentity) error {
		_, err := tok.Open(with, now, known...)
		return err
	}
	for _, tc := range []struct {
		name string
		got  error
		want error
	}{
		{"good", open(good, recipient, at(), stranger.Public(), owner.Public()), nil},
		{"unknown owner", open(good, recipient, at(), stranger.Public()), ErrTokenOwner},
		{"no owner", open(good, recipient, at()), ErrTokenOwner},
		{"half an owner", open(good, recipient, at(), PublicIdentity{owner.Public().Encryption, stranger.Public().Signing}), ErrTokenOwner},
		{"a minute early", open(good, recipient, at().Add(-60*time.Second), owner.Public()), nil},
		{"too early", open(good, recipient, at().Add(-61*time.Second), owner.Public()), ErrTokenNotYet},
		{"a minute late", open(good, recipient, at().Add(24*time.Hour+59*time.Second), owner.Public()), nil},
		{"expired", open(good, recipient, at().Add(24*time.Hour+60*time.Second), owner.Public()), ErrTokenExpired},
		{"another recipient", open(good, stranger, at(), owner.Public()), ErrTokenRecipient},
		{"unknown owner before expiry", open(good, recipient, at().Add(48*time.Hour)), ErrTokenOwner},
	} {
		if tc.want == nil && tc.got != nil {
			t.Errorf("%s: %v", tc.name, tc.got)
		} else if tc.want != nil {
			t.Run(tc.name, func(t *testing.T) { want(t, tc.got, tc.want) })
		}
	}
}

// TestForgedTokens promises that a token with a changed or added field is refused, and that a key that was
// wrapped for another scope does not open.
func TestForgedTokens(t *testing.T) {
	owner, recipient := generate(t), generate(t)
	good := token(t, owner, recipient.Public(), share())
	wide := share()
	wide.PathScope, wide.Permissions = "/", FullAccess()
	other := token(t, owner, recipient.Public(), wide)
	members := func(tok *Token) map[string]any {
		var m map[string]any
		if err := json.Unmarshal([]byte(tok.JSON()), &m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	for name, value := range map[string]any{
		"share_id": strings.Repeat("0", 32), "path_scope": "/", "created_at": 1, "expires_at": 1_900_000_000, "bucket": "other",
		"permissions":   map[string]bool{"read": true, "write": true, "delete": true},
		"encrypted_dek": members(other)["encrypted_dek"], "owner_public_key": encode64(make([]byte, 32)),
		"added": 1,
	} {
		changed := members(good)
		changed[name] = value
		text, err := json.Marshal(changed)
		if err != nil {
			t.Fatal(err)
		}
		tok, err := ParseToken(string(text))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := tok.Verify(at(), owner.Public(), tok.Owner); err == nil {
			t.Errorf("a token with another %s is accepted", name)
		} else {
			want(t, err, ErrTokenSignature)
		}
	}
	// An owner who signs a key that was wrapped for another scope gives nothing away either.
	if _, err := unwrapKey(recipient.classic, other.wrapped, good.bound); err == nil {
		t.Error("a wrapped key opens under another scope")
	}
}

// TestPathsOfGrants promises that a grant allows a path only within its scope and permissions, and refuses each
// other path with the error of its mistake.
func TestPathsOfGrants(t *testing.T) {
	owner, recipient := generate(t), generate(t)
	grant, err := token(t, owner, recipient.Public(), share()).Open(recipient, at(), owner.Public())
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		path string
		p    Permission
		want error
	}{
		{"/photos", Read, nil},
		{"/photos/a.jpg", Read, nil},
		{"/photos/./b/../a.jpg", Read, nil},
		{"/letters/../photos/a.jpg", Read, nil},
		{"/photos/../letters/a.txt", Read, ErrPathScope},
		{"/photos-private/a.jpg", Read, ErrPathScope},
		{"/photo", Read, ErrPathScope},
		{"/", Read, ErrPathScope},
		{"/photos/../../etc", Read, ErrPathEscape},
		{"/../photos/a.jpg", Read, ErrPathEscape},
		{"/photos/%2e%2e/letters", Read, ErrPathEscape},
		{"/photos/%2E./letters", Read, ErrPathEscape},
		{"/photos/%252e%252e/letters", Read, ErrPathEscape},
		{"/photos%2f..%2fletters", Read, ErrPathEscape},
		{`/photos\..\letters`, Read, ErrPathEscape},
		{"photos/a.jpg", Read, ErrPath},
		{"", Read, ErrPath},
		{"/photos/a\x00.jpg", Read, ErrPath},
		{"/photos/a.jpg", Write, ErrPermission},
		{"/photos/a.jpg", Delete, ErrPermission},
		{"/letters/a.txt", Delete, ErrPathScope},
	} {
		_, err := grant.Allow(tc.path, tc.p)
		if tc.want == nil && err != nil || tc.want != nil {
			t.Run(tc.path, func(t *testing.T) { want(t, err, tc.want) })
		}
	}
	for _, tc := range []struct {
		preset              Permissions
		read, write, delete bool
	}{{ReadOnly(), true, false, false}, {ReadWrite(), true, true, false}, {FullAccess(), true, true, true}, {Permissions{}, false, false, false}} {
		if tc.preset.Allows(Read) != tc.read || tc.preset.Allows(Write) != tc.write || tc.preset.Allows(Delete) != tc.delete {
			t.Errorf("%+v grants something else", tc.preset)
		}
	}
}

// TestTokensOfOtherImplementations promises that other names of permissions, fields that are not
// known, and a scope without its first slash are read.
func TestTokensOfOtherImplementations(t *testing.T) {
	owner, recipient := generate(t), generate(t)
	own := owner.Public()
	tok, err := owner.sign(recipient.Public(), map[string]any{
		"share_id": strings.Repeat("ab", 16), "path_scope": "photos/", "created_at": at().Unix(), "expires_at": nil,
		"permissions":      map[string]bool{"can_read": true, "can_write": false, "can_delete": false},
		"owner_public_key": encode64(own.Encryption[:]), "signer_public_key": encode64(own.Signing[:]),
		"note": map[string]any{"z": 1, "a": []int{1, 2}},
	}, [32]byte{7})
	if err != nil {
		t.Fatal(err)
	}
	grant, err := tok.Open(recipient, at(), own)
	if err != nil {
		t.Fatal(err)
	}
	if grant.Scope() != "/photos" || grant.Token().Permissions != ReadOnly() {
		t.Errorf("scope %s, permissions %+v", grant.Scope(), tok.Permissions)
	}
	opener, err := grant.Opener("/photos/a.jpg")
	if err != nil || opener != DataKey([32]byte{7}) {
		t.Errorf("opener %v, %v", opener, err)
	}
}

// TestLinks promises that a link opens without an identity until it expires, that its secrets are in the
// fragment only, and that a malformed link is refused.
func TestLinks(t *testing.T) {
	owner := generate(t)
	made, err := owner.NewLink("https://example.org/share", "access&key=1", share())
	if err != nil {
		t.Fatal(err)
	}
	page, fragment, _ := strings.Cut(made.URL(), "#")
	if page != "https://example.org/share" || !strings.Contains(fragment, "k=") {
		t.Errorf("link is %s", made.URL())
	}
	read, err := ParseLink(made.URL())
	if err != nil {
		t.Fatal(err)
	}
	if read.Page != page || read.Secret != made.Secret || read.Access != "access&key=1" || len(read.Endpoints) != 0 || read.Token.JSON() != made.Token.JSON() {
		t.Errorf("link comes back as %+v", read)
	}
	if grant, err := read.Open(at()); err != nil || grant.Scope() != "/photos" {
		t.Errorf("%v", err)
	}
	_, err = read.Open(at().Add(48 * time.Hour))
	want(t, err, ErrTokenExpired)
	_, err = read.Open(at(), generate(t).Public())
	want(t, err, ErrTokenOwner)
	for _, bad := range []string{
		"", "https://example.org/share", "ftp://example.org/#" + fragment, "/share#" + fragment, "https://u:p@example.org/#" + fragment,
		"https://example.org/#" + strings.Replace(fragment, "&k=", "&k=x", 1), "https://example.org/#" + strings.Replace(fragment, "&t=", "&x=", 1),
		"https://example.org/#%zz", "v=1", "https://example.org/#v=1&k=" + strings.Repeat("A", 43) + "&t=" + made.Token.String(),
	} {
		_, err := ParseLink(bad)
		want(t, err, ErrToken)
	}
	_, err = ParseLink("https://example.org/#" + strings.Replace(fragment, "v=1", "v=3", 1))
	want(t, err, ErrVersion)
	_, err = ParseLink("https://example.org/#a=token&b=bucket&p=folder%2F&v=2")
	want(t, err, ErrPlainLink)
	_, err = ParsePlainLink("https://example.org/#" + fragment)
	want(t, err, ErrVersion)
	_, err = owner.NewLink("example.org", "", share())
	want(t, err, ErrToken)
}

// TestLinksWithoutAPageOrAKey promises that the text of a link without a page is the fragment alone,
// that endpoints come back, and that only the recipient opens a link without a key.
func TestLinksWithoutAPageOrAKey(t *testing.T) {
	owner, recipient := generate(t), generate(t)
	made := Link{Token: token(t, owner, recipient.Public(), share()), Access: "a", Endpoints: []string{"https://one:9000", "http://two?a&b"}}
	for _, page := range []string{"", "https://example.org/share"} {
		made.Page = page
		read, err := ParseLink(" " + made.URL() + "\n")
		if err != nil {
			t.Fatal(err)
		}
		if read.Page != page || !read.Personal() || read.Access != "a" || !slices.Equal(read.Endpoints, made.Endpoints) {
			t.Errorf("link comes back as %+v", read)
		}
		_, err = read.Open(at())
		want(t, err, ErrTokenRecipient)
		if _, err := read.Token.Open(recipient, at(), owner.Public()); err != nil {
			t.Error(err)
		}
	}
	made.Endpoints = make([]string, maxEndpoints+1)
	_, err := ParseLink(made.URL())
	want(t, err, ErrTooLarge)
}

// TestStorageKeysOfShares promises that the token of one object has its storage key, and that only a grant
// with write permission has storage keys for new files.
func TestStorageKeysOfShares(t *testing.T) {
	owner, recipient := generate(t), generate(t)
	s, key := share(), newDataKey()
	s.PathScope, s.Object, s.StorageKey = "/photos/a.jpg", &key, "e/0123"
	read, err := ParseToken(token(t, owner, recipient.Public(), s).String())
	if err != nil || read.StorageKey != "e/0123" {
		t.Fatalf("storage key %q, %v", read.StorageKey, err)
	}
	s = share()
	s.Permissions = ReadWrite()
	grant, err := token(t, owner, recipient.Public(), s).Open(recipient, at(), owner.Public())
	if err != nil {
		t.Fatal(err)
	}
	one, err := grant.StorageKey("/photos/new.jpg")
	if err != nil || !strings.HasPrefix(one, "e/") || len(one) != len("e/")+36 {
		t.Errorf("%q, %v", one, err)
	}
	if two, err := grant.StorageKey("/photos/new.jpg"); err != nil || two == one {
		t.Errorf("%q, %v", two, err)
	}
	_, err = grant.StorageKey("/other/new.jpg")
	want(t, err, ErrPathScope)
	grant, err = token(t, owner, recipient.Public(), share()).Open(recipient, at(), owner.Public())
	if err != nil {
		t.Fatal(err)
	}
	_, err = grant.StorageKey("/photos/new.jpg")
	want(t, err, ErrPermission)
}

// TestTokensThatMeanNothing promises that a share which ends before it begins, a scope that is no
// path, and a kind of key that is not known are refused.
func TestTokensThatMeanNothing(t *testing.T) {
	owner, recipient := generate(t), generate(t)
	s := share()
	s.Expires = s.Created
	_, err := owner.NewToken(recipient.Public(), s)
	want(t, err, ErrToken)
	s = share()
	s.PathScope = "photos"
	_, err = owner.NewToken(recipient.Public(), s)
	want(t, err, ErrPath)
	s.PathScope = "/photos/../.."
	_, err = owner.NewToken(recipient.Public(), s)
	want(t, err, ErrPathEscape)
	own := owner.Public()
	members := map[string]any{
		"share_id": strings.Repeat("ab", 16), "path_scope": "/../photos", "created_at": at().Unix(), "permissions": map[string]bool{"read": true, "write": false, "delete": false},
		"owner_public_key": encode64(own.Encryption[:]), "signer_public_key": encode64(own.Signing[:]),
	}
	tok, err := owner.sign(recipient.Public(), members, [32]byte{1})
	if err != nil {
		t.Fatal(err)
	}
	_, err = tok.Open(recipient, at(), own)
	want(t, err, ErrPathEscape)
	delete(members, "signature")
	delete(members, "encrypted_dek")
	members["key_kind"] = "other"
	_, err = owner.sign(recipient.Public(), members, [32]byte{1})
	want(t, err, ErrToken)
	_, err = ParseToken(strings.Repeat("x", 2*maxToken))
	want(t, err, ErrTooLarge)
}

// A link to content that is not encrypted says where it is and who may read it, with and without a
// page, and is refused without one of these. The texts of its type do not have the credential.
func TestPlainLinks(t *testing.T) {
	const fragment = "a=secret&b=photos&e=http%3A%2F%2Fone%3A9000&p=trip%2Fday+1%2F&v=2"
	for _, text := range []string{"https://example.org/shared#" + fragment, " v=2&" + fragment + "\n"} {
		l, err := ParsePlainLink(text)
		if err != nil || l.Bucket != "photos" || l.Place != "trip/day 1/" || l.Access != "secret" || !slices.Equal(l.Endpoints, []string{"http://one:9000"}) {
			t.Errorf("%q is %+v, %v", text, l, err)
		}
		if told := fmt.Sprintf("%v %#v", l, l); strings.Contains(told, "secret") {
			t.Errorf("the link is printed as %s", told)
		}
	}
	for bad, kind := range map[string]error{
		"":                       ErrToken,
		"https://example.org/":   ErrToken,
		"v=2&b=photos&p=cat.txt": ErrToken,
		"v=2&b=photos&a=secret":  ErrToken,
		"v=2&p=cat.txt&a=secret": ErrToken,
		"v=3&b=a&p=cat.txt&a=s":  ErrVersion,
		"/shared#" + fragment:    ErrToken,
		"v=2&" + strings.Repeat("e=x&", maxEndpoints+1) + "b=a&p=b&a=c": ErrTooLarge,
	} {
		_, err := ParsePlainLink(bad)
		want(t, err, kind)
	}
}
