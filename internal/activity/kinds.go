package activity

// Kind is a group of log records that an operator looks for together. The values are part of
// addresses of pages.
type Kind string

// The kinds of records. A record of another subject has the kind "".
const (
	Elections Kind = "elections" // which node leads and who votes
	Members   Kind = "members"   // nodes that join, stop and come back
	Repairs   Kind = "repairs"   // copies that are made again
	Scrubs    Kind = "scrubs"    // verified and damaged blocks
	Refused   Kind = "refused"   // unknown peers, and nodes that may not join
	Disks     Kind = "disks"     // disks without room
)

// Kinds returns all kinds, in the order in which pages show them.
func Kinds() []Kind { return []Kind{Elections, Members, Repairs, Scrubs, Refused, Disks} }

// kindOf returns the kind of a record with a message, or "". A test finds each of these messages in
// the sources.
func kindOf(message string) Kind {
	switch message {
	case "leader changed", "the leader no longer leads", "this node starts an election", "this node hands leadership over", "cannot hand leadership over",
		"this node is not eligible to vote and hands leadership over", "this node was removed from the cluster and hands leadership over",
		"this node is eligible to vote from now on", "leader promotes a member to voter", "leader demotes a voter that is not needed",
		"leader demotes a member that is not eligible to vote", "leader raises the time that it may be silent before an election",
		"a member is too far away for cluster.heartbeat: set it longer on every member":
		return Elections
	case "node joined", "joining node disconnected", "leader added a member as a nonvoter", "leader removes a Raft server that is not a member",
		"member is back", "member was stopped", "member does not answer", "the cluster cannot write", "the cluster can write again",
		"this node has not joined yet and tries again",
		"this node is behind the cluster and answers no reads", "this node has caught up and answers reads again":
		return Members
	case "leader placed roots on other members", "repair failed before its end", "repair of roots on drained members failed before its end",
		"no repair while 50 % of the members or more are down", "content is no longer complete on this node",
		"moved a folder aside: this node fetches its content again", "this node is complete again: removing the folders that it moved aside",
		"rebuilding the block index from the segments":
		return Repairs
	case "scrub found damaged blocks", "scrub verified all blocks", "scrub failed before its end", "cannot look for damaged blocks",
		"stored block is damaged", "segment is damaged: moving its readable blocks", "segment contains unreadable bytes", "segment is missing",
		"cannot compact a segment with unreadable bytes", "cannot read a stored block", "block index is damaged: the next start rebuilds it",
		"member sent a bad block":
		return Scrubs
	case "refused at the cluster port", "join refused",
		"two processes run with the identity of one member: end the one whose data folder is a copy, at once":
		return Refused
	case "disk is full: writes wait for room", "disk is full: deleting the ballast file", "disk has room again", "the disk of the Raft log is full",
		"cannot read the free space of the disk", "cannot create the ballast file on this disk", "the ballast file is missing or smaller than before",
		"cannot save the list of members: the disk is full", "cannot rewrite the end of a segment: the disk is full",
		"no room to record the first index of the Raft log", "no room to record that this node is eligible to vote":
		return Disks
	}
	return ""
}
