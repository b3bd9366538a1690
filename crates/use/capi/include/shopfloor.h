/* shopfloor for C; docs/c.md explains it.
 *
 * Made of crates/use/capi by cbindgen; SHOPFLOOR_HEADER=write cargo test -p shopfloor-capi writes it anew.
 *
 * Functions that can fail give an error, or NULL. Text is UTF-8 and ends with a zero byte. Null pointers where none
 * may be, counts and lengths that do not fit, and wrong types are errors. Handles are freed by the function of
 * their name, once; what was freed must not be used. Sessions may be used by any number of threads at once.
 */

#ifndef SHOPFLOOR_H
#define SHOPFLOOR_H

#include <stddef.h>
#include <stdint.h>

/*
 No error: the code of NULL.
 */
#define SHOPFLOOR_OK 0

/*
 The bytes of the model are no well-formed ONNX message.
 */
#define SHOPFLOOR_DAMAGED 1

/*
 The model has operators that are not covered.
 */
#define SHOPFLOOR_UNSUPPORTED 2

/*
 The model contradicts itself, or cannot be planned.
 */
#define SHOPFLOOR_MODEL 3

/*
 The inputs of a request do not fit the model: names, types, sizes.
 */
#define SHOPFLOOR_INPUT 4

/*
 A request was refused: the queue is full, or its deadline cannot be kept.
 */
#define SHOPFLOOR_REFUSED 5

/*
 A request was given up.
 */
#define SHOPFLOOR_CANCELLED 6

/*
 A request failed while it ran.
 */
#define SHOPFLOOR_FAILED 7

/*
 A device cannot be used.
 */
#define SHOPFLOOR_DEVICE 8

/*
 A file cannot be read.
 */
#define SHOPFLOOR_IO 9

/*
 Another argument is wrong: a null pointer, a length, a name.
 */
#define SHOPFLOOR_USAGE 10

/*
 A fault of this library.
 */
#define SHOPFLOOR_INTERNAL 11

/*
 What is no tensor: a sequence, an optional value or a map.
 */
#define SHOPFLOOR_OTHER 0

/*
 IEEE binary32.
 */
#define SHOPFLOOR_FLOAT 1

/*
 Unsigned 8-bit integers.
 */
#define SHOPFLOOR_UINT8 2

/*
 Signed 8-bit integers.
 */
#define SHOPFLOOR_INT8 3

/*
 Unsigned 16-bit integers.
 */
#define SHOPFLOOR_UINT16 4

/*
 Signed 16-bit integers.
 */
#define SHOPFLOOR_INT16 5

/*
 Signed 32-bit integers.
 */
#define SHOPFLOOR_INT32 6

/*
 Signed 64-bit integers.
 */
#define SHOPFLOOR_INT64 7

/*
 Texts. As an input: pointers to texts that end with a zero byte.
 */
#define SHOPFLOOR_STRING 8

/*
 Bytes that are 0 or 1.
 */
#define SHOPFLOOR_BOOL 9

/*
 IEEE binary16.
 */
#define SHOPFLOOR_FLOAT16 10

/*
 IEEE binary64.
 */
#define SHOPFLOOR_DOUBLE 11

/*
 Unsigned 32-bit integers.
 */
#define SHOPFLOOR_UINT32 12

/*
 Unsigned 64-bit integers.
 */
#define SHOPFLOOR_UINT64 13

/*
 bfloat16.
 */
#define SHOPFLOOR_BFLOAT16 16

/*
 Unsigned 4-bit integers, two in a byte, the lower half first.
 */
#define SHOPFLOOR_UINT4 21

/*
 Signed 4-bit integers, two in a byte, the lower half first.
 */
#define SHOPFLOOR_INT4 22

/*
 By this requests are given up from another thread. Freed by shopfloor_cancel_free, when no request has it.
 */
typedef struct shopfloor_cancel shopfloor_cancel;

/*
 Why a call did nothing. Functions that can fail give one, or NULL; it is freed by shopfloor_error_free.
 */
typedef struct shopfloor_error shopfloor_error;

/*
 How a session is made. What is not set is as the library finds best.
 */
typedef struct shopfloor_options shopfloor_options;

/*
 What a request gave. Freed by shopfloor_outputs_free.
 */
typedef struct shopfloor_outputs shopfloor_outputs;

/*
 A model ready to run. Any number of threads may use it at once; it is freed when none does.
 */
typedef struct shopfloor_session shopfloor_session;

/*
 Messages of one session in a row, of which each finds the state that the one before left. Threads that call it
 at once take turns. It keeps what it needs of its session, which may be freed before it. Freed by
 shopfloor_stream_free.
 */
typedef struct shopfloor_stream shopfloor_stream;

/*
 A dimension of an input or output.
 */
typedef struct {
  /*
   Its size; -1 where it is no number.
   */
  int64_t size;
  /*
   Its name where it has one, else NULL.
   */
  const char *symbol;
} shopfloor_dim;

/*
 An input or output as the model's file states it. Its pointers live as long as the session.
 */
typedef struct {
  /*
   Its name.
   */
  const char *name;
  /*
   Its type as ONNX spells it: "tensor(float)", "seq(tensor(int64))".
   */
  const char *kind;
  /*
   Its element type, such as SHOPFLOOR_FLOAT; SHOPFLOOR_OTHER for what is no tensor.
   */
  int32_t dtype;
  /*
   Number of its dimensions; -1 where the file does not state it.
   */
  int64_t rank;
  /*
   Its dimensions, outermost first.
   */
  const shopfloor_dim *dims;
} shopfloor_port;

/*
 An input of a request. Nothing of it is kept beyond the call, and its elements are read where they lie.
 */
typedef struct {
  /*
   Name of the model's input.
   */
  const char *name;
  /*
   Type of its elements, such as SHOPFLOOR_FLOAT.
   */
  int32_t dtype;
  /*
   Number of its dimensions.
   */
  size_t rank;
  /*
   Its dimensions, outermost first.
   */
  const int64_t *shape;
  /*
   Its elements, row-major; for SHOPFLOOR_STRING pointers to texts.
   */
  const void *data;
  /*
   Bytes that `data` points to; they must be what shape and type come to.
   */
  size_t bytes;
} shopfloor_input;

/*
 What a request asks beside its inputs.
 */
typedef struct {
  /*
   By this it can be given up; or NULL.
   */
  const shopfloor_cancel *cancel;
  /*
   Seconds within which it must be done, or it is refused; 0 for any time.
   */
  double deadline_s;
} shopfloor_call;

/*
 Memory of the caller's for an output.
 */
typedef struct {
  /*
   Name of the model's output.
   */
  const char *name;
  /*
   Type that its elements must have, such as SHOPFLOOR_FLOAT; no texts.
   */
  int32_t dtype;
  /*
   Where its elements go, row-major.
   */
  void *data;
  /*
   Bytes that there is room for.
   */
  size_t capacity;
  /*
   Bytes that were written, or that are needed where there is too little room.
   */
  size_t bytes;
  /*
   Where its dimensions go, outermost first.
   */
  int64_t *shape;
  /*
   Dimensions that there is room for.
   */
  size_t most_dims;
  /*
   Number of its dimensions.
   */
  size_t rank;
} shopfloor_buffer;

/*
 An output of a request. Its pointers live as long as the outputs that it is one of.
 */
typedef struct {
  /*
   Name of the model's output.
   */
  const char *name;
  /*
   Type of its elements, such as SHOPFLOOR_FLOAT.
   */
  int32_t dtype;
  /*
   Number of its dimensions.
   */
  size_t rank;
  /*
   Its dimensions, outermost first.
   */
  const int64_t *shape;
  /*
   Its elements, row-major; NULL for texts (shopfloor_outputs_text) and for what is no tensor.
   */
  const void *data;
  /*
   Bytes that `data` points to.
   */
  size_t bytes;
} shopfloor_output;

/*
 A dimension of a model with a range of sizes.
 */
typedef struct {
  /*
   Name of the dimension.
   */
  const char *name;
  /*
   Its least size.
   */
  int64_t least;
  /*
   Its largest size.
   */
  int64_t most;
} shopfloor_range;

/*
 What a stream asks beside its dimensions.
 */
typedef struct {
  /*
   Messages whose answers were not received, at most; 0 for 64.
   */
  size_t capacity;
  /*
   Seconds for which a message lies for somebody to receive it, and for those of other streams to be joined with
   it, before another thread runs it all the same; 0 for a millisecond. Where it is negative nothing is run
   unless somebody receives it or asks for it.
   */
  double linger_s;
  /*
   Name of the input that says which rows of the caches count, so that streams whose caches have other lengths
   may run at once; or NULL.
   */
  const char *mask;
} shopfloor_streaming;

/*
 A dimension of a model with a size.
 */
typedef struct {
  /*
   Name of the dimension.
   */
  const char *name;
  /*
   Its size.
   */
  int64_t size;
} shopfloor_size;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Its code, one of SHOPFLOOR_DAMAGED and those behind it; SHOPFLOOR_OK for NULL.
 */
int32_t shopfloor_error_code(const shopfloor_error *error);

/*
 Its message: one sentence that names the file, node or tensor and what to do. It lives as long as the error;
 that of NULL is empty.
 */
const char *shopfloor_error_message(const shopfloor_error *error);

/*
 Frees it; NULL is nothing.
 */
void shopfloor_error_free(shopfloor_error *error);

/*
 The version of this library, such as "0.2.0".
 */
const char *shopfloor_version(void);

/*
 Bits of an element of this type; 0 for texts and for what is no type.
 */
size_t shopfloor_dtype_bits(int32_t number);

/*
 New options; NULL only where there is no memory. Freed by shopfloor_options_free.
 */
shopfloor_options *shopfloor_options_new(void);

/*
 Frees them; NULL is nothing. Sessions that were made with them stay.
 */
void shopfloor_options_free(shopfloor_options *options);

/*
 Workers, the thread that runs a request included; at least 1. The cores that this process may use when not set.
 */
shopfloor_error *shopfloor_options_set_threads(shopfloor_options *options,
                                               size_t threads);

/*
 What the model runs on: "cpu", "cuda", "cuda:1", "wgpu", "emulated:t4", "cpu+cuda" and others, where the library
 was built with them. The CPU when not set.
 */
shopfloor_error *shopfloor_options_set_device(shopfloor_options *options,
                                              const char *device);

/*
 Bytes that a plan may take; sizes that need more are errors. No limit when not set.
 */
shopfloor_error *shopfloor_options_set_memory(shopfloor_options *options, uint64_t bytes);

/*
 How exactly products of float are multiplied: "exact", "f32" (when not set), "bf16x3", "tf32" or "bf16".
 */
shopfloor_error *shopfloor_options_set_precision(shopfloor_options *options,
                                                 const char *precision);

/*
 Plans cover the dimension `name` of the model from `least` to `most`, both included; equal ones bind it. Other
 sizes are planned for when a request first has them.
 */
shopfloor_error *shopfloor_options_set_dim(shopfloor_options *options,
                                           const char *name,
                                           int64_t least,
                                           int64_t most);

/*
 Requests that run at once and that wait at most; others are refused. 8 and 1024 when not set.
 */
shopfloor_error *shopfloor_options_set_queue(shopfloor_options *options,
                                             size_t running,
                                             size_t waiting);

/*
 Declares state of streams: what output `output` gives is what input `input` takes in the next message.
 */
shopfloor_error *shopfloor_options_set_state(shopfloor_options *options,
                                             const char *input,
                                             const char *output);

/*
 Declares the state whose inputs and outputs are named as exporters name them (past_key_values.0.key with
 present.0.key, state with stateN), unless shopfloor_options_set_state declares any.
 */
shopfloor_error *shopfloor_options_find_states(shopfloor_options *options);

/*
 Loads the ONNX model in the file at `path`. `options` may be NULL. The session goes to `session`, which is NULL
 where this fails, and is freed by shopfloor_session_free.
 */
shopfloor_error *shopfloor_session_open_file(const char *path,
                                             const shopfloor_options *options,
                                             shopfloor_session **session);

/*
 Loads the ONNX model whose file is the `bytes` bytes at `model`, which are copied once.
 */
shopfloor_error *shopfloor_session_open_memory(const void *model,
                                               size_t bytes,
                                               const shopfloor_options *options,
                                               shopfloor_session **session);

/*
 As shopfloor_session_open_memory without a copy: the bytes must stay as they are until the library calls
 `release` with `context`. It does so once, from any thread, also where this fails; NULL if nothing is to be done.
 */
shopfloor_error *shopfloor_session_open_shared(const void *model,
                                               size_t bytes,
                                               void (*release)(void*),
                                               void *context,
                                               const shopfloor_options *options,
                                               shopfloor_session **session);

/*
 Frees it; NULL is nothing. No other thread may use it any more.
 */
void shopfloor_session_free(shopfloor_session *session);

/*
 Number of the model's inputs; 0 for NULL.
 */
size_t shopfloor_session_input_count(const shopfloor_session *session);

/*
 Number of the model's outputs; 0 for NULL.
 */
size_t shopfloor_session_output_count(const shopfloor_session *session);

/*
 Input number `index` of the model, in its file's order.
 */
shopfloor_error *shopfloor_session_input(const shopfloor_session *session,
                                         size_t index,
                                         shopfloor_port *input);

/*
 Output number `index` of the model, in its file's order.
 */
shopfloor_error *shopfloor_session_output(const shopfloor_session *session,
                                          size_t index,
                                          shopfloor_port *output);

/*
 Runs one request: `count` inputs, in any order. `call` may be NULL. What it gives goes to `outputs`, which is NULL
 where this fails. It returns when the request is done; the calling thread works too.
 */
shopfloor_error *shopfloor_run(const shopfloor_session *session,
                               const shopfloor_input *inputs,
                               size_t count,
                               const shopfloor_call *call,
                               shopfloor_outputs **outputs);

/*
 Runs one request and copies outputs into memory of the caller's: `buffers` of them, those that it names. Nothing
 is written where this fails, but for `bytes` and `rank` of the buffers, which say what is needed.
 */
shopfloor_error *shopfloor_run_into(const shopfloor_session *session,
                                    const shopfloor_input *inputs,
                                    size_t count,
                                    const shopfloor_call *call,
                                    shopfloor_buffer *buffers,
                                    size_t buffer_count);

/*
 A handle that was not used yet; NULL only where there is no memory.
 */
shopfloor_cancel *shopfloor_cancel_new(void);

/*
 Gives up every request that has this handle, and those that will have it: they end with SHOPFLOOR_CANCELLED. From
 any thread; NULL is nothing.
 */
void shopfloor_cancel_now(const shopfloor_cancel *cancel);

/*
 Frees it; NULL is nothing. No request may have it any more.
 */
void shopfloor_cancel_free(shopfloor_cancel *cancel);

/*
 Number of outputs; 0 for NULL.
 */
size_t shopfloor_outputs_count(const shopfloor_outputs *outputs);

/*
 Output number `index`, in the model's order.
 */
shopfloor_error *shopfloor_outputs_get(const shopfloor_outputs *outputs,
                                       size_t index,
                                       shopfloor_output *output);

/*
 The output `name`.
 */
shopfloor_error *shopfloor_outputs_find(const shopfloor_outputs *outputs,
                                        const char *name,
                                        shopfloor_output *output);

/*
 Text number `element` of output number `index`: its bytes, which end with no zero byte and live as long as the
 outputs, and how many they are.
 */
shopfloor_error *shopfloor_outputs_text(const shopfloor_outputs *outputs,
                                        size_t index,
                                        size_t element,
                                        const char **text,
                                        size_t *bytes);

/*
 Frees them; NULL is nothing.
 */
void shopfloor_outputs_free(shopfloor_outputs *outputs);

/*
 Opens a stream of `session`, whose state is declared by shopfloor_options_set_state or
 shopfloor_options_find_states. One plan covers `count` ranges of dimensions for its whole life; where the range of
 the batch goes beyond a message's, messages of several streams may run as one. State begins as zeros. `how` may be
 NULL. The stream goes to `stream`, which is NULL where this fails.
 */
shopfloor_error *shopfloor_stream_open(const shopfloor_session *session,
                                       const shopfloor_range *ranges,
                                       size_t count,
                                       const shopfloor_streaming *how,
                                       shopfloor_stream **stream);

/*
 Begins with `count` states in place of zeros, or goes on with them; each is named by the input that takes it, and
 is copied once. Only while no message is pending, and not for state that stays in place.
 */
shopfloor_error *shopfloor_stream_start(const shopfloor_stream *stream,
                                        const shopfloor_input *states,
                                        size_t count);

/*
 Queues a message: `count` inputs, all but state. They are copied once. `cancel` gives it up, and may be NULL; a
 message that was given up leaves the state as it was. What is wrong with a message beyond names and types is its
 answer.
 */
shopfloor_error *shopfloor_stream_send(const shopfloor_stream *stream,
                                       const shopfloor_input *inputs,
                                       size_t count,
                                       const shopfloor_cancel *cancel);

/*
 Waits for the answer to the first message whose answer was not received: every output but state. The calling thread
 works. It fails with what that message failed with, or where nothing was sent.
 */
shopfloor_error *shopfloor_stream_receive(const shopfloor_stream *stream,
                                          shopfloor_outputs **outputs);

/*
 As shopfloor_stream_receive, and NULL goes to `outputs` where the answer is not there yet. The calling thread does
 not work: what was sent is run now, by another one.
 */
shopfloor_error *shopfloor_stream_try_receive(const shopfloor_stream *stream,
                                              shopfloor_outputs **outputs);

/*
 Sends a message and waits for its answer. Only while none is pending.
 */
shopfloor_error *shopfloor_stream_run(const shopfloor_stream *stream,
                                      const shopfloor_input *inputs,
                                      size_t count,
                                      shopfloor_outputs **outputs);

/*
 Messages whose answers were not received; 0 for NULL.
 */
size_t shopfloor_stream_pending(const shopfloor_stream *stream);

/*
 Answers that are there to be received; 0 for NULL.
 */
size_t shopfloor_stream_ready(const shopfloor_stream *stream);

/*
 Bytes of state that it holds now; 0 for NULL.
 */
uint64_t shopfloor_stream_state_bytes(const shopfloor_stream *stream);

/*
 Name of input number `index` of those that it keeps as state, in the model's order; NULL where there are fewer. It
 lives as long as the stream.
 */
const char *shopfloor_stream_state(const shopfloor_stream *stream,
                                   size_t index);

/*
 Frees it with its state and its messages; NULL is nothing. No thread may use it any more.
 */
void shopfloor_stream_free(shopfloor_stream *stream);

/*
 The plan for these sizes as a table: every step with its predicted time, and the reasons for what was chosen
 where `reasons` is not 0. A dimension that is not named has the top of its range, or 1. The text goes to `plan`
 and is freed by shopfloor_text_free.
 */
shopfloor_error *shopfloor_session_plan(const shopfloor_session *session,
                                        const shopfloor_size *sizes,
                                        size_t count,
                                        int32_t reasons,
                                        char **plan);

/*
 Frees a text; NULL is nothing.
 */
void shopfloor_text_free(char *text);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* SHOPFLOOR_H */
