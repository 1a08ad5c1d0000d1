// What the page asks of the server that it came from.

export class ServerError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

function headers(key) {
  const given = { "Content-Type": "application/json" };
  if (key) given.Authorization = `Bearer ${key}`;
  return given;
}

async function checked(response) {
  if (response.ok) return response;
  let message = `the server answered with status ${response.status}`;
  try {
    message = (await response.json()).error.message;
  } catch {
    // a body in another form says no more than the status
  }
  throw new ServerError(message, response.status);
}

// the model as /v1/models lists it
export async function modelOf(key) {
  const response = await checked(await fetch("/v1/models", { headers: headers(key) }));
  return (await response.json()).data[0];
}

// the chunks of a chat's answer as they come
export async function* chunksOf(request, key, signal) {
  const body = JSON.stringify({
    ...request,
    stream: true,
    stream_options: { include_usage: true },
    return_drafts: true,
  });
  const options = { method: "POST", headers: headers(key), body, signal };
  const response = await checked(await fetch("/v1/chat/completions", options));
  for await (const data of eventsOf(response.body)) {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new ServerError(chunk.error.message, 500);
    yield chunk;
  }
  throw new ServerError("the connection ended before the answer did", 0);
}

// the data of each server-sent event
async function* eventsOf(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const events = (waiting + value).split("\n\n");
      waiting = events.pop();
      for (const event of events) {
        if (event.startsWith("data: ")) yield event.slice("data: ".length);
      }
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}
