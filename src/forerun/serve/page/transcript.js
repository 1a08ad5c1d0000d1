// The conversation as it is shown. Texts become text nodes, never markup.

const MOST_REJECTED = 12; // of a round; a tree may have many more

export class Transcript {
  #log;

  constructor(log) {
    this.#log = log;
  }

  clear() {
    this.#log.replaceChildren();
  }

  user(text) {
    const words = this.#article("user", "You");
    words.textContent = text;
    this.follow();
    return words.parentElement;
  }

  answer() {
    return new Answer(this.#article("assistant", "Model"));
  }

  // keep the end in view, unless the reader has scrolled up
  follow(always = true) {
    const left = this.#log.scrollHeight - this.#log.scrollTop - this.#log.clientHeight;
    if (always || left < 120) this.#log.scrollTop = this.#log.scrollHeight;
  }

  #article(kind, name) {
    const article = element("article", kind);
    const words = element("p", "words");
    article.append(element("h2", "", name), words);
    this.#log.append(article);
    return words;
  }
}

class Answer {
  #words;
  text = "";

  constructor(words) {
    this.#words = words;
  }

  // the tokens of a round in the order in which they were decided: accepted ones, rejected ones, the model's own
  round(round) {
    const emitted = [...round.emitted];
    while (emitted.length && emitted[0].drafted) this.#say(emitted.shift().text, "accepted");
    const rejected = round.drafted.filter((token) => !token.accepted).slice(0, MOST_REJECTED);
    for (const token of rejected) this.#show(token.text, "rejected").ariaHidden = "true";
    for (const token of emitted) this.#say(token.text, token.drafted ? "accepted" : "own");
  }

  // text that became certain at the end
  rest(text) {
    this.#say(text, "own");
  }

  note(parts) {
    this.#words.parentElement.append(element("p", "note", parts.filter(Boolean).join(" · ")));
  }

  remove() {
    this.#words.parentElement.remove();
  }

  #say(text, kind) {
    this.text += text;
    this.#show(text, kind);
  }

  #show(text, kind) {
    const token = element("span", `token ${kind}`, text);
    this.#words.append(token);
    return token;
  }
}

function element(name, kind, text = "") {
  const made = document.createElement(name);
  made.className = kind;
  made.textContent = text;
  return made;
}
