package state

// Judge tells whether the condition holds for the current version, which is nil
// when there is none, as Apply will judge it.
func (v *Condition) Judge(current *Object) error { return v.judge(current) }
