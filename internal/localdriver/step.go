package localdriver

// step is a moment between two effects: what came before it has happened, what
// comes after it has not. A driver can be killed at each of them, and the tests
// do that.
type step string

const (
	createRecorded step = "create: recorded"
	createMade     step = "create: content made"

	deleteRecorded step = "delete: recorded"
	deleteEmptied  step = "delete: content removed"

	stageRecorded  step = "stage: recorded"
	stageAttached  step = "stage: attached"
	stageFormatted step = "stage: formatted"
	stageNoted     step = "stage: formatting recorded"
	stageMounted   step = "stage: mounted"

	publishRecorded step = "publish: recorded"
	publishPrepared step = "publish: target made"
	publishBound    step = "publish: bound"
	publishFlagged  step = "publish: flags set"

	unpublishUnmounted step = "unpublish: unmounted"
	unpublishRemoved   step = "unpublish: target removed"

	unstageUnmounted step = "unstage: unmounted"
	unstageDetached  step = "unstage: detached"
)

// steps lists them all.
func steps() []step {
	return []step{
		createRecorded, createMade, deleteRecorded, deleteEmptied,
		stageRecorded, stageAttached, stageFormatted, stageNoted, stageMounted,
		publishRecorded, publishPrepared, publishBound, publishFlagged,
		unpublishUnmounted, unpublishRemoved, unstageUnmounted, unstageDetached,
	}
}
