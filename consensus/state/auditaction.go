package state

import (
	"fmt"
	"strings"
)

// Action names what an audited change did. The texts are on disk: never rename one.
type Action string

// All actions. The part of the text before the point is the family of the action.
const (
	ActionClusterCreate  Action = "cluster.create"
	ActionSigningKey     Action = "cluster.signing-key"
	ActionClusterRestore Action = "cluster.restore" // from a backup
	ActionClusterRecover Action = "cluster.recover" // on the member that survived the loss of a majority
	ActionSessionCreate  Action = "session.create"
	ActionSessionEnd     Action = "session.end"
	ActionRefusalsRest   Action = "session.refused" // row with the number of refused attempts that got no row of their own
	ActionKeyCreate      Action = "key.create"
	ActionKeyShow        Action = "key.show"
	ActionKeyRevoke      Action = "key.revoke"
	ActionUserCreate     Action = "user.create"
	ActionUserDelete     Action = "user.delete"
	ActionUserQuota      Action = "user.quota"
	ActionUserCredits    Action = "user.credits"
	ActionUserPassword   Action = "user.password"
	ActionUserAdmin      Action = "user.admin"
	ActionUserLink       Action = "user.link"
	ActionUserLinkEnd    Action = "user.link-revoke"
	ActionUserIdentity   Action = "user.identity"
	ActionUserUnlink     Action = "user.identity-remove"
	ActionMemberToken    Action = "member.token"
	ActionMemberJoin     Action = "member.join"
	ActionMemberRemove   Action = "member.remove"
	ActionMemberDrain    Action = "member.drain"
	ActionAppCreate      Action = "app.create"
	ActionAppRemove      Action = "app.remove"
	ActionBucketCreate   Action = "bucket.create"
	ActionBucketDelete   Action = "bucket.delete"
	ActionBucketPublic   Action = "bucket.public"
	ActionBucketCors     Action = "bucket.cors"
	ActionShareCreate    Action = "share.create"
	ActionShareRevoke    Action = "share.revoke"
	ActionUserDisable    Action = "user.disable"
	ActionUserEnable     Action = "user.enable"
	ActionUserDry        Action = "user.content-end" // an account without credits loses content
)

// Actions returns all actions, ordered by family.
func Actions() []Action {
	return []Action{
		ActionAppCreate, ActionAppRemove,
		ActionBucketCreate, ActionBucketDelete, ActionBucketPublic, ActionBucketCors,
		ActionClusterCreate, ActionSigningKey, ActionClusterRestore, ActionClusterRecover,
		ActionKeyCreate, ActionKeyShow, ActionKeyRevoke,
		ActionMemberToken, ActionMemberJoin, ActionMemberDrain, ActionMemberRemove,
		ActionSessionCreate, ActionSessionEnd, ActionRefusalsRest,
		ActionShareCreate, ActionShareRevoke,
		ActionUserCreate, ActionUserDelete, ActionUserQuota, ActionUserCredits, ActionUserPassword, ActionUserAdmin, ActionUserLink, ActionUserLinkEnd,
		ActionUserIdentity, ActionUserUnlink, ActionUserDisable, ActionUserEnable, ActionUserDry,
	}
}

// Family returns the first part of an action, such as "user".
func (a Action) Family() string {
	family, _, _ := strings.Cut(string(a), ".")
	return family
}

// ActionOf returns the action under which the audit log records a command, or "" if the command
// is not audited. It does not read the state, so commands that are not audited stay cheap.
func ActionOf(cmd Command) Action {
	switch v := cmd.(type) {
	case *Audited:
		return ActionOf(v.Change)
	case *ByKey:
		return ActionOf(v.Change)
	case *BySession:
		return ActionOf(v.Change)
	case *InitCluster:
		return ActionClusterCreate
	case *RotateSigningKey:
		return ActionSigningKey
	case *CreateSession, *BeginSession:
		return ActionSessionCreate
	case *EndSession:
		return ActionSessionEnd
	case *CreateKey:
		return ActionKeyCreate
	case *RevokeKey:
		return ActionKeyRevoke
	case *NoteKeyShown:
		return ActionKeyShow
	case *CreateAccount, *OpenAccount, *OpenFirstAdmin, *SignUp:
		return ActionUserCreate
	case *CloseAccount, *CloseOwnAccount:
		return ActionUserDelete
	case *SetQuota:
		return ActionUserQuota
	case *GrantCredits, *PostCredits:
		return ActionUserCredits
	case *SetPassword, *ResetPassword:
		return ActionUserPassword
	case *SetAdmin, *DecideAdmin:
		return ActionUserAdmin
	case *SetDisabled:
		return choose(v.On, ActionUserDisable, ActionUserEnable)
	case *AddOneTimeLink:
		return ActionUserLink
	case *RemoveOneTimeLink:
		return ActionUserLinkEnd
	case *LinkIdentity:
		return ActionUserIdentity
	case *UnlinkIdentity:
		return ActionUserUnlink
	case *CreateTicket:
		return ActionMemberToken
	case *JoinNode:
		return ActionMemberJoin
	case *RemoveNode:
		return ActionMemberRemove
	case *SetDrain:
		return ActionMemberDrain
	case *AddApp:
		return ActionAppCreate
	case *RemoveApp:
		return ActionAppRemove
	case *CreateBucket:
		return ActionBucketCreate
	case *DeleteBucket:
		return ActionBucketDelete
	case *SetBucketPublic:
		return ActionBucketPublic
	case *SetBucketCors:
		return ActionBucketCors
	case *CreateShare:
		return ActionShareCreate
	case *RevokeShare:
		return ActionShareRevoke
	case *EndContent:
		return ActionUserDry
	}
	return ""
}

// describe sets the target and the detail of the audit row for a change. It runs before the
// change is applied, because some changes remove the records that the row names. Members of
// different releases must produce equal rows: never change a text of an existing action.
func (v *AuditRow) describe(r Reader, change Command) error {
	switch c := change.(type) {
	case *ByKey:
		return v.describeAsked(r, Actor{Kind: ActorKey, Key: c.Key}, c.Change)
	case *BySession:
		return v.describeAsked(r, Actor{Kind: ActorSession, Session: c.Session}, c.Change)
	case *CreateSession:
		return v.signedIn(r, c.Session.Account, c.Session.ID)
	case *BeginSession:
		return v.signedIn(r, c.Session.Account, c.Session.ID)
	case *EndSession:
		return v.aboutSession(r, c.ID)
	case *ResetPassword:
		if err := v.signedIn(r, c.Account, ""); err != nil {
			return err
		}
		v.Detail += ", by a one-time link"
	case *CreateKey:
		v.Target = string(c.Key.ID)
		return v.aboutKey(r, &c.Key)
	case *RevokeKey:
		return v.aboutStoredKey(r, c.ID)
	case *NoteKeyShown:
		return v.aboutStoredKey(r, c.ID)
	case *CloseAccount:
		return v.aboutAccount(r, c.Account, "")
	case *CloseOwnAccount:
		return v.aboutAccount(r, c.Account, "by its owner")
	case *SetQuota:
		return v.aboutAccount(r, c.Account, allowanceText(c.Allowance))
	case *GrantCredits:
		return v.aboutAccount(r, c.Posting.Account, fmt.Sprintf("%d credits", c.Posting.Credits))
	case *PostCredits:
		return v.aboutAccount(r, c.Posting.Account, withComma(fmt.Sprintf("%s of %s credits", c.Posting.Kind, c.Posting.Signed()), c.Posting.Note))
	case *SetPassword:
		return v.aboutAccount(r, c.Account, "")
	case *EndContent:
		return v.aboutAccount(r, c.Account, "")
	case *SetDisabled:
		return v.aboutAccount(r, c.Account, "")
	case *SetAdmin:
		return v.aboutAccount(r, c.Account, choose(c.Admin, "administrator", "no longer administrator"))
	case *DecideAdmin:
		return v.aboutAccount(r, c.Account, choose(c.Admin, "administrator", "no longer administrator")+choose(c.BySetting, " by a setting", ""))
	case *LinkIdentity:
		return v.aboutAccount(r, c.Identity.Account, c.Identity.Issuer)
	case *UnlinkIdentity:
		return v.aboutAccount(r, c.Account, "")
	case *RemoveNode:
		return v.aboutNode(r, c.ID, "")
	case *SetDrain:
		return v.aboutNode(r, c.Node, choose(c.On, "begun", "ended"))
	case *CreateShare:
		v.aboutShare(&c.Share)
	case *RevokeShare:
		s, err := get[Share](r, shareKey(c.Account, c.Born, c.ID))
		if err != nil || s == nil {
			return err
		}
		v.aboutShare(s)
	case *AddOneTimeLink:
		return v.aboutLink(r, &c.Link)
	case *RemoveOneTimeLink:
		l, err := get[OneTimeLink](r, oneTimeKey(c.ID))
		if err != nil || l == nil {
			return err
		}
		return v.aboutLink(r, l)
	default:
		v.describeSelf(change)
	}
	return nil
}

// aboutNode sets the target to a member's id and the detail to its name, followed by the text
// more.
func (v *AuditRow) aboutNode(r Reader, id NodeID, more string) error {
	v.Target = string(id)
	n, err := get[Node](r, nodeKey(id))
	if err != nil || n == nil {
		return err
	}
	v.Detail = withComma(n.Name, more)
	return nil
}

// describeSelf sets the target and the detail for commands that contain all the data, so that it
// need not read the state.
func (v *AuditRow) describeSelf(change Command) {
	switch c := change.(type) {
	case *InitCluster:
		v.Target, v.Detail, v.At = c.Cluster.ID, c.Operator.Email, c.Cluster.Created
	case *CreateAccount:
		v.opened(&c.Account, "")
	case *OpenAccount:
		v.opened(&c.Account, allowanceText(c.Allowance))
	case *OpenFirstAdmin:
		v.opened(&c.Account, "administrator")
	case *SignUp:
		v.opened(&c.Account, choose(c.Admin, "administrator", ""))
	case *CreateTicket:
		v.Target, v.Detail = string(c.Ticket.ID), "valid until "+c.Ticket.Expires.Time().Format("2006-01-02 15:04:05")
	case *JoinNode:
		v.Target, v.Detail = string(c.Node.ID), c.Node.Name
	case *AddApp:
		v.Target, v.Detail = c.App.Name, strings.Join(c.App.Redirects, " ")
	case *RemoveApp:
		v.Target = c.Name
	case *CreateBucket:
		v.aboutBucket(c.Bucket.Account, c.Bucket.Name, choose(c.Bucket.Public, "public", ""))
	case *DeleteBucket:
		v.aboutBucket(c.Account, c.Name, "")
	case *SetBucketPublic:
		v.aboutBucket(c.Account, c.Name, choose(c.Public, "public", "private"))
	case *SetBucketCors:
		v.aboutBucket(c.Account, c.Bucket, fmt.Sprintf("%d rules", len(c.Cors.Rules)))
	}
}

// describeAsked describes a change that was wrapped in ByKey or BySession. If the proposer named
// no actor, the caller becomes the actor.
func (v *AuditRow) describeAsked(r Reader, caller Actor, change Command) (err error) {
	if v.Actor.Kind == ActorCluster {
		_, caller.Account = asked(change)
		if caller.Email, err = emailOf(r, caller.Account); err != nil {
			return err
		}
		v.Actor = caller
	}
	return v.describe(r, change)
}

// signedIn describes a change that itself proves who the caller is, such as a sign-in. The
// account becomes the actor of the row if the actor has no account yet.
func (v *AuditRow) signedIn(r Reader, account AccountID, session SessionID) error {
	email, err := emailOf(r, account)
	if err != nil {
		return err
	}
	if v.Actor.Kind == ActorAnonymous || v.Actor.Kind == ActorCluster {
		v.Actor.Account, v.Actor.Email, v.Actor.Session = account, email, session
	}
	v.Target, v.Detail = string(account), email
	return nil
}

// opened sets the target and the detail of the row to a new account.
func (v *AuditRow) opened(a *Account, detail string) {
	v.Target, v.Detail = string(a.ID), withComma(a.Email, detail)
}

// aboutAccount sets the target of the row to an account's id, and the detail to its e-mail
// address and the given text.
func (v *AuditRow) aboutAccount(r Reader, account AccountID, detail string) error {
	email, err := emailOf(r, account)
	v.Target, v.Detail = string(account), withComma(email, detail)
	return err
}

// aboutLink sets the target and the detail of the row to a one-time link.
func (v *AuditRow) aboutLink(r Reader, l *OneTimeLink) error {
	v.Target, v.Detail = l.Email, l.Purpose.String()
	if l.Account == "" {
		return nil
	}
	return v.aboutAccount(r, l.Account, l.Purpose.String())
}

// aboutSession sets the target and the detail of the row to a session, if the session exists.
func (v *AuditRow) aboutSession(r Reader, id SessionID) error {
	s, err := get[Session](r, sessionKey(id))
	if err != nil || s == nil {
		return err
	}
	v.Target = string(id)
	if v.Detail, err = emailOf(r, s.Account); err == nil && v.Actor.Kind == ActorAnonymous {
		// A caller without other credentials ends a session by the token of the session.
		v.Actor.Kind, v.Actor.Account, v.Actor.Email, v.Actor.Session = ActorSession, s.Account, v.Detail, id
	}
	return err
}

// aboutStoredKey sets the target and the detail of the row to the API key with the id, or to the
// share that has this key, if there is one.
func (v *AuditRow) aboutStoredKey(r Reader, id KeyID) error {
	v.Target = string(id)
	k, err := get[APIKey](r, apiKeyKey(id))
	if err != nil {
		return err
	}
	if k != nil {
		return v.aboutKey(r, k)
	}
	s, err := findShare(r, id)
	if err == nil && s != nil {
		v.aboutShare(s)
	}
	return err
}

// aboutShare sets the target and the detail of the row to a share. It omits the share's prefixes,
// because object keys are the users' data.
func (v *AuditRow) aboutShare(s *Share) {
	var rights []string
	for _, right := range []struct {
		given bool
		name  string
	}{{s.Read, "read"}, {s.Write, "write"}, {s.Delete, "delete"}} {
		if right.given {
			rights = append(rights, right.name)
		}
	}
	v.aboutBucket(s.Account, s.Bucket, withComma(withComma("share "+string(s.ID), s.Name), strings.Join(rights, " ")))
}

func (v *AuditRow) aboutKey(r Reader, k *APIKey) error {
	email, err := emailOf(r, k.Account)
	v.Detail = withComma(withComma(email, k.Name), strings.Join(k.Scope, " "))
	return err
}

func (v *AuditRow) aboutBucket(account AccountID, name, detail string) {
	v.Target, v.Detail = string(account)+"/"+name, detail
}

// emailOf returns the e-mail address of an account, or "" if the account does not exist.
func emailOf(r Reader, id AccountID) (string, error) {
	a, err := get[Account](r, accountKey(id))
	if err != nil || a == nil {
		return "", err
	}
	return a.Email, nil
}

// withComma joins two texts with a comma. If one text is empty, it returns the other.
func withComma(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + ", " + b
}

func choose[T any](yes bool, a, b T) T {
	if yes {
		return a
	}
	return b
}

// allowanceText returns an allowance in the largest unit that gives a whole number.
func allowanceText(bytes uint64) string {
	if bytes == Unlimited {
		return "no limit"
	}
	for i, unit := range []string{"TiB", "GiB", "MiB", "KiB"} {
		if size := uint64(1) << (40 - 10*i); bytes >= size && bytes%size == 0 {
			return fmt.Sprintf("%d %s", bytes/size, unit)
		}
	}
	return fmt.Sprintf("%d bytes", bytes)
}

// String returns the text of the purpose in the audit log.
func (p LinkPurpose) String() string {
	switch p {
	case ForSignUp:
		return "invitation"
	case ForPassword:
		return "new password"
	case ForSession:
		return "sign-in"
	}
	return fmt.Sprintf("purpose %d", uint8(p))
}
