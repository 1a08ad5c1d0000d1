// A column for each round: the model's own token, and above it the drafted ones.

const MOST = 600; // columns; older ones go

export class Strip {
  #element;
  #rounds = 0;
  #drafted = 0;
  #accepted = 0;

  constructor(element) {
    this.#element = element;
  }

  clear() {
    this.#element.replaceChildren();
    this.#rounds = this.#drafted = this.#accepted = 0;
    this.#element.ariaLabel = "No rounds yet";
  }

  add(round) {
    const accepted = round.drafted.filter((token) => token.accepted).length;
    const column = document.createElement("div");
    column.className = "round";
    column.title =
      `round ${round.round}: ${accepted} of ${round.drafted.length} drafted tokens accepted, ` +
      `${(1000 * round.seconds).toFixed(1)} ms`;
    column.append(cell("own"));
    for (const token of round.drafted) column.append(cell(token.accepted ? "accepted" : "rejected"));
    this.#element.append(column);
    while (this.#element.childElementCount > MOST) this.#element.firstElementChild.remove();
    this.#rounds += 1;
    this.#drafted += round.drafted.length;
    this.#accepted += accepted;
  }

  // after the rounds of a frame
  settle() {
    this.#element.scrollTop = this.#element.scrollHeight;
    this.#element.ariaLabel = `${this.#rounds} rounds, ${this.#accepted} of ${this.#drafted} drafted tokens accepted`;
  }
}

function cell(kind) {
  const made = document.createElement("i");
  made.className = kind;
  return made;
}
