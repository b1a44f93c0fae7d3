package api

import "time"

// StreamID names one stream. It is made by the server that wants it, and is
// known to that server and the stream's agent only.
type StreamID string

// StreamKind is what flows on a stream.
type StreamKind string

// The kinds of streams.
const (
	// StreamLogs carries the log of a task to a reader.
	StreamLogs StreamKind = "logs"
	// StreamQuestion carries the answer to a question: values of JSON.
	StreamQuestion StreamKind = "question"
	// StreamFigures carries what the tasks of an allocation use: AllocFigures, as
	// JSON.
	StreamFigures StreamKind = "figures"
	// StreamExec carries a command that a person runs where a task runs. It goes
	// both ways: what the command reads is the answer to the agent's request.
	StreamExec StreamKind = "exec"
	// StreamSignal carries which tasks got a signal: Signalled, as JSON.
	StreamSignal StreamKind = "signal"
)

// StreamOffer is a stream that a server wants from an agent. The agent takes it
// up by a request of its own, whose body is the stream: it only ever dials out.
type StreamOffer struct {
	ID   StreamID   `json:"id"`
	Kind StreamKind `json:"kind"`
	// Logs or Question is set for that kind.
	Logs     *LogRequest `json:"logs,omitempty"`
	Question *Question   `json:"question,omitempty"`
	// Figures is the allocation that StreamFigures is about.
	Figures AllocID `json:"figures,omitempty"`
	// Exec is set for StreamExec.
	Exec *ExecOffer `json:"exec,omitempty"`
	// Signal is set for StreamSignal.
	Signal *SignalOffer `json:"signal,omitempty"`
}

// StreamPing is how often an agent says on a stream that it is there.
const StreamPing = 10 * time.Second

// LogRequest asks an agent for a task's log.
type LogRequest struct {
	AllocID AllocID `json:"alloc_id"`
	Task    string  `json:"task"`
	LogQuery
}

// LogType is one of the two things that a task writes.
type LogType string

// The types of logs.
const (
	LogStdout LogType = "stdout"
	LogStderr LogType = "stderr"
)

// LogQuery says what of a log to read. Positions count all bytes that the task
// has ever written to it, also those that are kept no longer.
type LogQuery struct {
	// Type is stdout if empty.
	Type LogType `json:"type,omitempty"`
	// Offset is the position to begin at, or, below 0, how many bytes before
	// the end. What is kept no longer is passed over.
	Offset int64 `json:"offset,omitempty"`
	// Tail begins that many lines before the end instead; 0 begins at the end.
	Tail *int64 `json:"tail,omitempty"`
	// Follow goes on until the task has ended.
	Follow bool `json:"follow,omitempty"`
}

// MaxTail bounds LogQuery.Tail.
const MaxTail = 1_000_000

// Validate reports every problem.
func (q *LogQuery) Validate() error {
	var p Problems
	oneOf(&p, "type", q.Type, LogStdout, LogStderr)
	if q.Tail != nil && (*q.Tail < 0 || *q.Tail > MaxTail) {
		p.Addf("tail", "give a number of lines from 0 to 1000000", "is %d", *q.Tail)
	}
	if q.Tail != nil && q.Offset != 0 {
		p.Add("offset", "is given, and so is tail", "give one of them")
	}
	return p.Err("the request")
}

// LogBegun is what an agent says before the first byte of a log.
type LogBegun struct {
	// Offset is the position of that byte.
	Offset int64 `json:"offset"`
}
