package accounts

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"unicode/utf8"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"golang.org/x/crypto/argon2"
)

// Cost of a password hash: OWASP's least for argon2id, as servers of this kind
// are small. A hash carries its cost, so it can be raised for new ones.
const (
	argonMemory = 19 << 10 // KiB
	argonPasses = 2
	argonLanes  = 1
	argonSalt   = 16 // bytes
	argonHash   = 32 // bytes
)

// Bounds of passwords and of hashing them.
const (
	MinPassword = 8    // characters
	MaxPassword = 1024 // bytes
	// maxHashing is how many passwords are hashed at once; more wait, so that a
	// crowd cannot take all memory and processors.
	maxHashing = 2
)

// hashPassword returns the argon2id hash of a password in PHC string form:
// $argon2id$v=19$m=<KiB>,t=<passes>,p=<lanes>$<salt>$<hash>, both in base64
// without padding.
func (a *Accounts) hashPassword(ctx context.Context, password string) (string, error) {
	switch {
	case !utf8.ValidString(password):
		return "", state.Errorf(state.CodeInvalid, "the password is not valid UTF-8")
	case utf8.RuneCountInString(password) < MinPassword:
		return "", state.Errorf(state.CodeInvalid, "the password is shorter than %d characters", MinPassword)
	case len(password) > MaxPassword:
		return "", state.Errorf(state.CodeInvalid, "the password is longer than %d bytes", MaxPassword)
	}
	select {
	case a.hashing <- struct{}{}:
		defer func() { <-a.hashing }()
	case <-ctx.Done():
		return "", fmt.Errorf("hash password: %w", ctx.Err())
	}
	salt := make([]byte, argonSalt)
	if _, err := rand.Read(salt); err != nil {
		return "", fmt.Errorf("hash password: %w", err)
	}
	hash := argon2.IDKey([]byte(password), salt, argonPasses, argonMemory, argonLanes, argonHash)
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, argonMemory, argonPasses, argonLanes,
		base64.RawStdEncoding.EncodeToString(salt), base64.RawStdEncoding.EncodeToString(hash)), nil
}
