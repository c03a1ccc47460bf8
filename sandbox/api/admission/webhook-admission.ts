import type { Agent } from 'node:https';
import { messageOf } from '#src/runtime/error-message.ts';
import type { Logger } from '#src/runtime/log.ts';
import { ApiError } from '../api-error.ts';
import { type JsonObject, textAt } from '../json-value.ts';
import { hooksOf, validatingWebhooks } from '../kinds/admission.ts';
import { namespaces } from '../kinds/core.ts';
import type { Store } from '../store.ts';
import { hookMatches } from './hook-match.ts';
import type { Review, Steps } from './review.ts';
import { agentFor, callWebhook } from './webhook-call.ts';

/** Asks the webhooks of all ValidatingWebhookConfigurations about writes. */
export class WebhookAdmission {
  readonly #store: Store;
  readonly #log: Logger;
  /** By webhook: a changed configuration has new objects. */
  readonly #agents = new Map<JsonObject, Agent>();
  readonly #unsubscribe: () => void;

  constructor(store: Store, log: Logger) {
    this.#store = store;
    this.#log = log;
    const { listeners } = store.collection(validatingWebhooks);
    const closeUnused = () => this.#closeAgents(new Set(this.#hooks()));
    listeners.add(closeUnused);
    this.#unsubscribe = () => listeners.delete(closeUnused);
  }

  /** Carries out an operation, with its reviews in between. */
  async carryOut<Result>(steps: Steps<Result>): Promise<Result> {
    let step = steps.next();
    while (step.done !== true) {
      const refusal = await this.#verdict(step.value);
      step = refusal === undefined ? steps.next() : steps.throw(refusal);
    }
    return step.value;
  }

  /** Tells the webhooks of a write by one of the sandbox's own controllers, which does not wait for
   * their verdict. */
  announce(review: Review): void {
    void this.#verdict(review);
  }

  close(): void {
    this.#unsubscribe();
    this.#closeAgents(new Set());
  }

  /** Asks all webhooks that match, at once. One that allows nothing refuses the write.
   * @returns the first refusal; undefined if all allow it */
  async #verdict(review: Review): Promise<ApiError | undefined> {
    const hooks = this.#hooksFor(review);
    if (hooks.length === 0) return undefined;
    const verdicts = await Promise.all(hooks.map((hook) => this.#ask(hook, review)));
    return verdicts.find((verdict) => verdict !== undefined);
  }

  #hooksFor(review: Review): readonly JsonObject[] {
    // Webhooks are not asked about their own configurations: a broken one could not be removed.
    if (review.resource.group === validatingWebhooks.group) return [];
    const { namespace } = (review.object ?? review.old)?.metadata ?? {};
    const home =
      namespace === undefined
        ? undefined
        : this.#store.collection(namespaces).objects.get(namespace)?.object;
    const labels = namespace === undefined ? undefined : (home?.metadata.labels ?? {});
    return this.#hooks().filter((hook) => hookMatches(hook, review, labels));
  }

  #hooks(): readonly JsonObject[] {
    const configurations = this.#store.collection(validatingWebhooks).sorted;
    return configurations.flatMap(({ object }) => hooksOf(object));
  }

  async #ask(hook: JsonObject, review: Review): Promise<ApiError | undefined> {
    try {
      return await callWebhook(hook, review, this.#agentFor(hook));
    } catch (error) {
      const name = JSON.stringify(textAt(hook, 'name'));
      const why = `failed calling webhook ${name}: ${messageOf(error)}`;
      this.#log.warn({ webhook: textAt(hook, 'name'), err: error }, 'a webhook failed');
      if (textAt(hook, 'failurePolicy') === 'Ignore') return undefined;
      const message = `Internal error occurred: ${why}`;
      return new ApiError({ code: 500, reason: 'InternalError', message });
    }
  }

  #agentFor(hook: JsonObject): Agent {
    const known = this.#agents.get(hook);
    if (known !== undefined) return known;
    const agent = agentFor(hook);
    this.#agents.set(hook, agent);
    return agent;
  }

  #closeAgents(used: ReadonlySet<JsonObject>): void {
    for (const [hook, agent] of this.#agents) {
      if (used.has(hook)) continue;
      agent.destroy();
      this.#agents.delete(hook);
    }
  }
}
