// The page: what was said, what is asked, and what is shown of it.

import { Meter, number, share } from "./meter.js";
import { chunksOf, modelOf } from "./server.js";
import { Strip } from "./strip.js";
import { Transcript } from "./transcript.js";

const at = (id) => document.getElementById(id);
const transcript = new Transcript(at("log"));
const strip = new Strip(at("strip"));
let messages = [];
let running = null; // ends the answer that is being written

at("form").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = at("text").value.trim();
  if (running || !text) return;
  const bubble = transcript.user(text);
  messages.push({ role: "user", content: text });
  at("text").value = "";
  answer(null, () => {
    messages.pop();
    bubble.remove();
    at("text").value ||= text;
  });
});

at("again").addEventListener("click", () => {
  if (running || messages.at(-1)?.role !== "assistant" || !at("form").reportValidity()) return;
  const before = messages.pop();
  answer(before.content, () => messages.push(before));
});

at("reset").addEventListener("click", () => {
  running?.abort();
  running = null;
  messages = [];
  transcript.clear();
  strip.clear();
  show(new Meter());
  complain("");
  busy(false);
  at("text").focus();
});

at("stop").addEventListener("click", () => running?.abort());
at("keep").addEventListener("change", () => document.body.classList.toggle("keep", at("keep").checked));
at("speculate").addEventListener("change", () => (at("method").disabled = !at("speculate").checked));
at("key").addEventListener("change", greet);

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") running?.abort();
});

at("text").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  at("form").requestSubmit();
});

function asked() {
  const request = {
    messages,
    temperature: at("temperature").valueAsNumber,
    max_tokens: at("most").valueAsNumber,
    speculate: at("speculate").checked,
  };
  if (at("speculate").checked && at("method").value) request.method = at("method").value;
  return request;
}

// before: the text of the same answer, where it is asked for again; undo: what to do where there is no answer
async function answer(before, undo) {
  const conversation = messages;
  const controller = new AbortController();
  const shown = transcript.answer();
  const meter = new Meter();
  let waiting = [];
  let frame = 0;
  let ended = "stopped";

  // what came since the last frame is drawn at once: a fast model has several rounds a frame
  function draw() {
    frame = 0;
    if (conversation !== messages) return;
    for (const chunk of waiting) take(chunk, shown, meter);
    waiting = [];
    strip.settle();
    show(meter);
    transcript.follow(false);
  }

  running = controller;
  strip.clear();
  complain("");
  busy(true);
  try {
    for await (const chunk of chunksOf(asked(), at("key").value, controller.signal)) {
      waiting.push(chunk);
      frame ||= requestAnimationFrame(draw);
    }
    ended = "";
  } catch (error) {
    if (error.name !== "AbortError") complain(error.message, error.status);
  }
  cancelAnimationFrame(frame);
  draw();
  if (conversation !== messages) return;
  running = null;
  if (shown.text || !ended) {
    messages.push({ role: "assistant", content: shown.text });
    shown.note([meter.summary, ended, before === null || ended ? "" : compared(shown.text, before)]);
  } else {
    shown.remove();
    undo();
  }
  transcript.follow(false);
  busy(false);
}

function take(chunk, shown, meter) {
  if (chunk.forerun) {
    shown.round(chunk.forerun);
    meter.add(chunk.forerun);
    strip.add(chunk.forerun);
  } else if (chunk.choices[0]?.delta.content) {
    shown.rest(chunk.choices[0].delta.content);
  }
}

function compared(text, before) {
  return text === before ? "the same text as before" : "another text than before";
}

function show(meter) {
  at("rate").textContent = number(meter.rate, 0);
  at("acceptance").textContent = share(meter.acceptance);
  at("per-round").textContent = number(meter.perRound, 2);
  at("tokens").textContent = meter.tokens || "–";
}

function busy(is) {
  at("send").disabled = is;
  at("again").disabled = is || messages.at(-1)?.role !== "assistant";
  at("stop").disabled = !is;
  at("status").textContent = is ? "The model is writing." : "The answer has ended.";
}

function complain(message, status = 0) {
  at("alert").textContent = message;
  at("alert").hidden = !message;
  if (status === 401) {
    at("key-field").hidden = false;
    at("key").focus();
  }
}

async function greet() {
  const before = at("alert").textContent;
  try {
    const model = await modelOf(at("key").value);
    // what was refused in the meantime stays told
    if (at("alert").textContent === before) complain("");
    at("model").textContent = `${model.id}, ${model.forerun.kernels}`;
    const methods = model.forerun.methods;
    at("method").replaceChildren(...methods.map((name) => new Option(name, name, name === model.forerun.method)));
    at("method").value = model.forerun.method;
    at("method-field").hidden = methods.length < 2;
  } catch (error) {
    complain(error.message, error.status);
  }
}

greet();
