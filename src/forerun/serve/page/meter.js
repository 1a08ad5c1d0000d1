// Counts over the rounds of an answer.

export class Meter {
  rounds = 0;
  tokens = 0;
  drafted = 0;
  accepted = 0;
  seconds = 0;

  // the first round reads the prompt, and its token counts for no speed
  add(round) {
    const accepted = round.drafted.filter((token) => token.accepted).length;
    this.tokens += accepted + 1;
    this.drafted += round.drafted.length;
    this.accepted += accepted;
    if (round.round === 0) return;
    this.rounds += 1;
    this.seconds += round.seconds;
  }

  get rate() {
    return this.seconds > 0 ? (this.tokens - 1) / this.seconds : null;
  }

  get acceptance() {
    return this.drafted > 0 ? this.accepted / this.drafted : null;
  }

  get perRound() {
    return this.rounds > 0 ? (this.tokens - 1) / this.rounds : null;
  }

  get summary() {
    const said = [`${this.tokens} tokens`];
    if (this.rate !== null) said.push(`${number(this.rate, 0)} tokens/s`, `${number(this.perRound, 2)} tokens a round`);
    said.push(this.drafted > 0 ? `${this.accepted} of ${this.drafted} drafted tokens accepted` : "nothing drafted");
    return said.join(" · ");
  }
}

export function number(value, digits) {
  return value === null ? "–" : value.toFixed(digits);
}

export function share(value) {
  return value === null ? "–" : `${Math.round(100 * value)} %`;
}
