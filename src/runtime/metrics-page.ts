import type { Registry } from 'prom-client';

/** All who ask within this time get one text: collecting costs milliseconds. */
const FRESH_MS = 1_000;

/** The text of /metrics, collected once for all who ask at about the same time. */
export class MetricsPage {
  readonly #registry: Registry;
  /** The collection under way, or the last one while it is fresh. */
  #text: Promise<Buffer> | undefined;

  constructor(registry: Registry) {
    this.#registry = registry;
  }

  get contentType(): string {
    return this.#registry.contentType;
  }

  /** @returns bytes, so that all answers that wait to be read share them
   * @throws the error of a collection, which is not repeated within the time either */
  read(): Promise<Buffer> {
    this.#text ??= this.#collect();
    return this.#text;
  }

  async #collect(): Promise<Buffer> {
    try {
      return Buffer.from(await this.#registry.metrics());
    } finally {
      setTimeout(() => (this.#text = undefined), FRESH_MS).unref();
    }
  }
}
