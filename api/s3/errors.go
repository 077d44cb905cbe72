package s3

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/api/s3/sigv4"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Code is an error code of the S3 API
// (https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html).
type Code string

// The codes of this API, besides those of sigv4.
const (
	AccessControlListNotSupported                  Code = "AccessControlListNotSupported"
	AccessDenied                                   Code = "AccessDenied"
	AccessForbidden                                Code = "AccessForbidden"
	AccountProblem                                 Code = "AccountProblem"
	BadDigest                                      Code = "BadDigest"
	BadRequest                                     Code = "BadRequest"
	BucketAlreadyExists                            Code = "BucketAlreadyExists"
	BucketNotEmpty                                 Code = "BucketNotEmpty"
	EntityTooLarge                                 Code = "EntityTooLarge"
	EntityTooSmall                                 Code = "EntityTooSmall"
	IllegalVersioningConfigurationException        Code = "IllegalVersioningConfigurationException"
	IncompleteBody                                 Code = "IncompleteBody"
	IncorrectNumberOfFilesInPostRequest            Code = "IncorrectNumberOfFilesInPostRequest"
	InsufficientStorage                            Code = "InsufficientStorage"
	InternalError                                  Code = "InternalError"
	InvalidArgument                                Code = "InvalidArgument"
	InvalidBucketName                              Code = "InvalidBucketName"
	InvalidDigest                                  Code = "InvalidDigest"
	InvalidPart                                    Code = "InvalidPart"
	InvalidPartNumber                              Code = "InvalidPartNumber"
	InvalidPartOrder                               Code = "InvalidPartOrder"
	InvalidPolicyDocument                          Code = "InvalidPolicyDocument"
	InvalidRange                                   Code = "InvalidRange"
	InvalidRedirectLocation                        Code = "InvalidRedirectLocation"
	InvalidRequest                                 Code = "InvalidRequest"
	InvalidStorageClass                            Code = "InvalidStorageClass"
	InvalidTag                                     Code = "InvalidTag"
	InvalidURI                                     Code = "InvalidURI"
	KeyTooLongError                                Code = "KeyTooLongError"
	MalformedACLError                              Code = "MalformedACLError"
	MalformedPOSTRequest                           Code = "MalformedPOSTRequest"
	MalformedXML                                   Code = "MalformedXML"
	MaxMessageLengthExceeded                       Code = "MaxMessageLengthExceeded"
	MaxPostPreDataLengthExceeded                   Code = "MaxPostPreDataLengthExceeded"
	MetadataTooLarge                               Code = "MetadataTooLarge"
	MethodNotAllowed                               Code = "MethodNotAllowed"
	MissingContentLength                           Code = "MissingContentLength"
	MetadataConfigurationNotFound                  Code = "MetadataConfigurationNotFound"
	MissingSecurityHeader                          Code = "MissingSecurityHeader"
	NoSuchBucket                                   Code = "NoSuchBucket"
	NoSuchBucketPolicy                             Code = "NoSuchBucketPolicy"
	NoSuchConfiguration                            Code = "NoSuchConfiguration"
	NoSuchCORSConfiguration                        Code = "NoSuchCORSConfiguration"
	NoSuchKey                                      Code = "NoSuchKey"
	NoSuchLifecycleConfiguration                   Code = "NoSuchLifecycleConfiguration"
	NoSuchPublicAccessBlockConfiguration           Code = "NoSuchPublicAccessBlockConfiguration"
	NoSuchShare                                    Code = "NoSuchShare"
	NoSuchTagSet                                   Code = "NoSuchTagSet"
	NoSuchUpload                                   Code = "NoSuchUpload"
	NoSuchVersion                                  Code = "NoSuchVersion"
	NoSuchWebsiteConfiguration                     Code = "NoSuchWebsiteConfiguration"
	NotImplemented                                 Code = "NotImplemented"
	NotModified                                    Code = "NotModified"
	ObjectLockConfigurationNotFoundError           Code = "ObjectLockConfigurationNotFoundError"
	OperationAborted                               Code = "OperationAborted"
	OwnershipControlsNotFoundError                 Code = "OwnershipControlsNotFoundError"
	PreconditionFailed                             Code = "PreconditionFailed"
	ReplicationConfigurationNotFoundError          Code = "ReplicationConfigurationNotFoundError"
	RequestIsNotMultiPartContent                   Code = "RequestIsNotMultiPartContent"
	RequestTimeout                                 Code = "RequestTimeout"
	ServerSideEncryptionConfigurationNotFoundError Code = "ServerSideEncryptionConfigurationNotFoundError"
	ServiceUnavailable                             Code = "ServiceUnavailable"
	ShareAlreadyExists                             Code = "ShareAlreadyExists"
	SlowDown                                       Code = "SlowDown"
	TooManyBuckets                                 Code = "TooManyBuckets"
	TooManyShares                                  Code = "TooManyShares"
	UnexpectedContent                              Code = "UnexpectedContent"
)

// facts has the HTTP status of an error code.
type facts struct {
	status int
	bucket bool // the body of the answer has the element BucketName
}

var codes = map[Code]facts{
	AccessControlListNotSupported:           {http.StatusBadRequest, false},
	AccessDenied:                            {http.StatusForbidden, false},
	AccessForbidden:                         {http.StatusForbidden, false},
	AccountProblem:                          {http.StatusForbidden, false},
	BadDigest:                               {http.StatusBadRequest, false},
	BadRequest:                              {http.StatusBadRequest, false},
	BucketAlreadyExists:                     {http.StatusConflict, true},
	BucketNotEmpty:                          {http.StatusConflict, true},
	EntityTooLarge:                          {http.StatusBadRequest, false},
	EntityTooSmall:                          {http.StatusBadRequest, false},
	IllegalVersioningConfigurationException: {http.StatusBadRequest, false},
	IncompleteBody:                          {http.StatusBadRequest, false},
	IncorrectNumberOfFilesInPostRequest:     {http.StatusBadRequest, false},
	InsufficientStorage:                     {http.StatusInsufficientStorage, false},
	InternalError:                           {http.StatusInternalServerError, false},
	InvalidArgument:                         {http.StatusBadRequest, false},
	InvalidBucketName:                       {http.StatusBadRequest, true},
	InvalidDigest:                           {http.StatusBadRequest, false},
	InvalidPart:                             {http.StatusBadRequest, false},
	InvalidPartNumber:                       {http.StatusRequestedRangeNotSatisfiable, false},
	InvalidPartOrder:                        {http.StatusBadRequest, false},
	InvalidPolicyDocument:                   {http.StatusBadRequest, false},
	InvalidRange:                            {http.StatusRequestedRangeNotSatisfiable, false},
	InvalidRedirectLocation:                 {http.StatusBadRequest, false},
	InvalidRequest:                          {http.StatusBadRequest, false},
	InvalidStorageClass:                     {http.StatusBadRequest, false},
	InvalidTag:                              {http.StatusBadRequest, false},
	InvalidURI:                              {http.StatusBadRequest, false},
	KeyTooLongError:                         {http.StatusBadRequest, false},
	MalformedACLError:                       {http.StatusBadRequest, false},
	MalformedPOSTRequest:                    {http.StatusBadRequest, false},
	MalformedXML:                            {http.StatusBadRequest, false},
	MaxMessageLengthExceeded:                {http.StatusBadRequest, false},
	MaxPostPreDataLengthExceeded:            {http.StatusBadRequest, false},
	MetadataTooLarge:                        {http.StatusBadRequest, false},
	MethodNotAllowed:                        {http.StatusMethodNotAllowed, false},
	MissingContentLength:                    {http.StatusLengthRequired, false},
	MetadataConfigurationNotFound:           {http.StatusNotFound, true},
	MissingSecurityHeader:                   {http.StatusBadRequest, false},
	NoSuchBucket:                            {http.StatusNotFound, true},
	NoSuchBucketPolicy:                      {http.StatusNotFound, true},
	NoSuchConfiguration:                     {http.StatusNotFound, true},
	NoSuchCORSConfiguration:                 {http.StatusNotFound, true},
	NoSuchKey:                               {http.StatusNotFound, false},
	NoSuchLifecycleConfiguration:            {http.StatusNotFound, true},
	NoSuchPublicAccessBlockConfiguration:    {http.StatusNotFound, true},
	NoSuchShare:                             {http.StatusNotFound, false},
	NoSuchTagSet:                            {http.StatusNotFound, true},
	NoSuchUpload:                            {http.StatusNotFound, false},
	NoSuchVersion:                           {http.StatusNotFound, false},
	NoSuchWebsiteConfiguration:              {http.StatusNotFound, true},
	NotImplemented:                          {http.StatusNotImplemented, false},
	NotModified:                             {http.StatusNotModified, false},
	ObjectLockConfigurationNotFoundError:    {http.StatusNotFound, true},
	OperationAborted:                        {http.StatusConflict, false},
	OwnershipControlsNotFoundError:          {http.StatusNotFound, true},
	PreconditionFailed:                      {http.StatusPreconditionFailed, false},
	ReplicationConfigurationNotFoundError:   {http.StatusNotFound, true},
	RequestIsNotMultiPartContent:            {http.StatusBadRequest, false},
	RequestTimeout:                          {http.StatusBadRequest, false},
	ServerSideEncryptionConfigurationNotFoundError: {http.StatusNotFound, true},
	ServiceUnavailable: {http.StatusServiceUnavailable, false},
	ShareAlreadyExists: {http.StatusConflict, false},
	SlowDown:           {http.StatusServiceUnavailable, false},
	TooManyBuckets:     {http.StatusBadRequest, true},
	TooManyShares:      {http.StatusBadRequest, true},
	UnexpectedContent:  {http.StatusBadRequest, false},
}

// Error is an error that this package finds itself, with its S3 code.
type Error struct {
	Code    Code
	Message string
	// Bucket and Key name the subject of the error if it is not the one in the path.
	Bucket, Key string

	shown  string        // appended to the message for the client, but not logged, because it may contain a key
	more   [][2]string   // additional elements of the body: name and value
	status int           // status of a code that is not in codes; 0 for all others
	header http.Header   // additional headers of the answer
	retry  time.Duration // value of Retry-After; 0: none
}

func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

func errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// with adds a header to the answer and returns e.
func (e *Error) with(name, value string) *Error {
	if e.header == nil {
		e.header = http.Header{}
	}
	e.header.Set(name, value)
	return e
}

// element adds an element to the body of the answer and returns e.
func (e *Error) element(name, value string) *Error {
	e.more = append(e.more, [2]string{name, value})
	return e
}

// Values of the Retry-After header.
const (
	// retryUnavailable is about the duration of a leader election.
	retryUnavailable = time.Second
	// retryLimited is the wait after the node or the account has reached a limit.
	retryLimited = 10 * time.Second
	// retryNoSpace is about the time after which deleted content has freed space.
	retryNoSpace = 60 * time.Second
)

// errorTable has the answer to each error code of the state. An empty Message stands for the text
// of the error; otherwise the answer has Message instead of that text.
var errorTable = map[state.Code]Error{
	state.CodeInvalid:      {Code: InvalidArgument},
	state.CodeNotFound:     {Code: NoSuchKey, Message: "the specified key does not exist"},
	state.CodeExists:       {Code: BucketAlreadyExists, Message: "the requested bucket name is not available: you have a bucket of that name"},
	state.CodeConflict:     {Code: OperationAborted, Message: "a conflicting conditional operation is currently in progress against this resource: try again"},
	state.CodeUnauthorized: {Code: AccessDenied, Message: "access token is missing or invalid"},
	state.CodeForbidden:    {Code: AccessDenied, Message: "access denied"},
	state.CodeQuota:        {Code: AccountProblem},
	state.CodeUnavailable:  {Code: ServiceUnavailable, retry: retryUnavailable},
	state.CodeTooLarge:     {Code: EntityTooLarge},
	state.CodeLimited:      {Code: SlowDown, Message: "please reduce your request rate", retry: retryLimited},
	state.CodeNoSpace:      {Code: InsufficientStorage, Message: "the disks of the cluster are full: too few members have room for this content", retry: retryNoSpace},
	state.CodeNoBucket:     {Code: NoSuchBucket, Message: "the specified bucket does not exist"},
	state.CodeNoKey:        {Code: NoSuchKey, Message: "the specified key does not exist"},
	state.CodeNoUpload:     {Code: NoSuchUpload, Message: "the specified upload does not exist: its id may be invalid, or it may have been aborted or completed"},
	state.CodeNotEmpty:     {Code: BucketNotEmpty, Message: "the bucket you tried to delete is not empty"},
	state.CodePrecondition: {Code: PreconditionFailed, Message: "at least one of the preconditions you specified did not hold"},
	state.CodeInvalidPart:  {Code: InvalidPart, Message: "one or more of the specified parts could not be found: the part may not have been uploaded, or its ETag may not be that of the part"},
	state.CodeTooSmall:     {Code: EntityTooSmall},
	state.CodeNoVersion:    {Code: NoSuchVersion, Message: "the specified version does not exist"},
	state.CodeCredits:      {Code: AccessDenied},
}

// answer converts any error of a handler to the error for the client.
func (s *surface) answer(err error) Error {
	var own *Error
	if errors.As(err, &own) {
		return *own
	}
	var signed *sigv4.Error
	if errors.As(err, &signed) {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return Error{Code: RequestTimeout, Message: "your socket connection to the server was not read from or written to within the timeout period"}
		}
		name, status := signed.Code.S3()
		return Error{Code: Code(name), Message: signed.Detail, status: status}
	}
	var common *web.Error
	if errors.As(err, &common) && common.Answer.Status == http.StatusTooManyRequests {
		return Error{Code: SlowDown, Message: "please reduce your request rate", retry: common.Answer.RetryAfter}
	}
	var coded *state.Error
	if errors.As(err, &coded) {
		if e, ok := errorTable[coded.Code]; ok {
			switch {
			case coded.Code == state.CodeTooSmall:
				e.Message = fmt.Sprintf("your proposed upload is smaller than the minimum allowed size: a part that is not the last has at least %d bytes", s.minPart)
			case e.Message == "":
				e.Message = coded.Detail
			}
			return e
		}
		return internal()
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return Error{Code: RequestTimeout, Message: "your socket connection to the server was not read from or written to within the timeout period"}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return Error{Code: ServiceUnavailable, Message: "the cluster did not answer in time", retry: retryUnavailable}
	}
	return internal()
}

func internal() Error {
	return Error{Code: InternalError, Message: "we encountered an internal error: the request id names it in the log"}
}

// fail writes the answer to an error. An answer to HEAD has no body, so the code is in the header
// X-Amz-Error-Code.
func (s *surface) fail(w http.ResponseWriter, r *http.Request, err error) error {
	// The answer may be sent before the rest of the body is read, and nothing else bounds
	// that.
	defer func() { _ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.stall)) }()
	e := s.answer(err)
	f, known := codes[e.Code]
	if !known {
		f.status = e.status
	}
	header := w.Header()
	header.Set(requestIDHeader, header.Get(web.RequestIDHeader)) // serve does not run for requests that are refused earlier
	for name, values := range e.header {
		header[name] = values
	}
	header.Set("X-Amz-Error-Code", string(e.Code))
	if e.retry > 0 {
		header.Set("Retry-After", strconv.FormatInt(int64((e.retry+time.Second-1)/time.Second), 10))
	}
	if f.status == 0 {
		f.status = http.StatusInternalServerError
	}
	if r.Method == http.MethodHead {
		// SDKs ask for the region of a bucket without credentials. All buckets are in one
		// region, so the answer has it, whether the bucket exists or not.
		if f.status == http.StatusForbidden {
			if t, err := s.targetOf(r); err == nil && t.level == levelBucket {
				header.Set("X-Amz-Bucket-Region", s.region)
			}
		}
		w.WriteHeader(f.status)
		return nil
	}
	if f.status == http.StatusNotModified { // it has no body (RFC 9110, section 15.4.5)
		w.WriteHeader(f.status)
		return nil
	}
	t, wrong := s.targetOf(r)
	x := newXML()
	x.begin("Error")
	x.text("Code", string(e.Code))
	x.text("Message", legible(e.Message+e.shown)) // it may repeat text of the client
	for _, m := range e.more {
		x.text(m[0], legible(m[1]))
	}
	if f.bucket && wrong == nil {
		x.text("BucketName", legible(pick(e.Bucket, t.bucket)))
	}
	if e.Code == NoSuchKey && wrong == nil {
		x.text("Key", legible(pick(e.Key, t.key)))
	}
	x.text("Resource", r.URL.EscapedPath())
	x.text("RequestId", header.Get(requestIDHeader))
	x.end("Error")
	return x.send(w, f.status)
}

func pick(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
