package localdriver

// step is a moment between two effects: what came before it has happened, what
// comes after it has not. A driver can be killed at each of them, and the tests
// do that.
type step string

const (
	createRecorded step = "create: recorded"
	createMade     step = "create: content made"

	copyFrozen step = "copy: source frozen"
	copyMade   step = "copy: made"
	copyThawed step = "copy: source thawed"

	snapshotRecorded step = "snapshot: recorded"
	snapshotTaken    step = "snapshot: taken"

	dropRecorded step = "delete snapshot: recorded"
	dropEmptied  step = "delete snapshot: content removed"

	expandRecorded step = "expand: recorded"
	expandEnlarged step = "expand: content enlarged"
	growResized    step = "grow: device resized"
	growGrown      step = "grow: file system grown"

	deleteRecorded step = "delete: recorded"
	deleteEmptied  step = "delete: content removed"

	stageRecorded  step = "stage: recorded"
	stageAttached  step = "stage: attached"
	stageFormatted step = "stage: formatted"
	stageNoted     step = "stage: formatting recorded"
	stageGrown     step = "stage: file system grown"
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
		createRecorded, createMade, copyFrozen, copyMade, copyThawed, deleteRecorded, deleteEmptied,
		snapshotRecorded, snapshotTaken, dropRecorded, dropEmptied,
		expandRecorded, expandEnlarged, growResized, growGrown,
		stageRecorded, stageAttached, stageFormatted, stageNoted, stageGrown, stageMounted,
		publishRecorded, publishPrepared, publishBound, publishFlagged,
		unpublishUnmounted, unpublishRemoved, unstageUnmounted, unstageDetached,
	}
}
