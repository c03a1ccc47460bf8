import type { Cause } from './api-error.ts';
import { invalidValue, required, tooLong } from './field-error.ts';
import { objectAt, textAt, textsAt, type Json, type JsonObject } from './json-value.ts';

const LABEL = '[a-z0-9]([-a-z0-9]*[a-z0-9])?';
const SUBDOMAIN = `${LABEL}(\\.${LABEL})*`;
const QUALIFIED = '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]';
const labelForm = new RegExp(`^${LABEL}$`);
const subdomainForm = new RegExp(`^${SUBDOMAIN}$`);
const qualifiedForm = new RegExp(`^${QUALIFIED}$`);
const labelValueForm = /^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$/;
const configKeyForm = /^[-._a-zA-Z0-9]+$/;

const ALPHANUMERIC = 'alphanumeric characters';
const QUALIFIED_RULES =
  `must consist of ${ALPHANUMERIC}, '-', '_' or '.', and must start and end with an ` +
  `alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', ` +
  `regex used for validation is '${QUALIFIED}')`;

/** Why a text is no DNS subdomain (the form of most object names); undefined where it is one. The
 * messages here are the real server's. */
export function subdomainComplaint(name: string): string | undefined {
  if (name.length > 253) return 'must be no more than 253 bytes';
  if (subdomainForm.test(name)) return undefined;
  return (
    `a lowercase RFC 1123 subdomain must consist of lower case ${ALPHANUMERIC}, '-' or '.', ` +
    `and must start and end with an alphanumeric character (e.g. 'example.com', ` +
    `regex used for validation is '${SUBDOMAIN}')`
  );
}

/** Why a text is no DNS label (the form of namespaces); undefined where it is one. */
export function labelComplaint(name: string): string | undefined {
  if (name.length > 63) return 'must be no more than 63 bytes';
  if (labelForm.test(name)) return undefined;
  return (
    `a lowercase RFC 1123 label must consist of lower case ${ALPHANUMERIC} or '-', ` +
    `and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', ` +
    `regex used for validation is '${LABEL}')`
  );
}

/** Why a text is no key of a Secret or ConfigMap; undefined where it is one. */
export function configKeyComplaint(key: string): string | undefined {
  if (key.length > 253) return 'must be no more than 253 bytes';
  if (key === '.' || key === '..') return `must not be '${key}'`;
  if (configKeyForm.test(key)) return undefined;
  return (
    `a valid config key must consist of ${ALPHANUMERIC}, '-', '_' or '.' (e.g. 'key.name',  ` +
    `or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')`
  );
}

/** Why a text is no qualified name (`example.com/name`, the form of label keys, annotation keys and
 * finalizers); undefined where it is one. */
export function qualifiedNameComplaint(key: string): string | undefined {
  const parts = key.split('/');
  const name = parts.at(-1) ?? '';
  if (parts.length > 2) {
    return (
      `a qualified name ${QUALIFIED_RULES} with an optional DNS subdomain prefix and '/' ` +
      "(e.g. 'example.com/MyName')"
    );
  }
  if (parts.length === 2) {
    if (parts[0] === '') return 'prefix part must be non-empty';
    const complaint = subdomainComplaint(parts[0] ?? '');
    if (complaint !== undefined) return `prefix part ${complaint}`;
  }
  if (name === '') return 'name part must be non-empty';
  if (name.length > 63) return 'name part must be no more than 63 bytes';
  if (qualifiedForm.test(name)) return undefined;
  return `name part ${QUALIFIED_RULES}`;
}

/** The errors in labels: keys must be qualified names, values at most 63 characters of the same
 * alphabet. */
function labelCauses(labels: JsonObject, field: string): Cause[] {
  return Object.entries(labels).flatMap(([key, value]) => {
    const complaint = qualifiedNameComplaint(key);
    if (complaint !== undefined) return [invalidValue(field, key, complaint)];
    const text = typeof value === 'string' ? value : '';
    if (text.length > 63) return [invalidValue(field, text, 'must be no more than 63 bytes')];
    if (labelValueForm.test(text)) return [];
    const detail =
      `a valid label must be an empty string or consist of ${ALPHANUMERIC}, '-', '_' or '.', ` +
      `and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  ` +
      `or '12345', regex used for validation is '(${QUALIFIED})?')`;
    return [invalidValue(field, text, detail)];
  });
}

const ANNOTATIONS_MAX_BYTES = 256 * 1024;

/** The errors in the metadata of an object that is to be stored. */
export function metadataCauses(
  metadata: JsonObject,
  nameComplaint: (name: string) => string | undefined,
): Cause[] {
  return [
    ...nameCauses(metadata, nameComplaint),
    ...labelCauses(objectAt(metadata, 'labels'), 'metadata.labels'),
    ...annotationCauses(objectAt(metadata, 'annotations')),
    ...ownerCauses(metadata['ownerReferences']),
    ...textsAt(metadata, 'finalizers').flatMap(finalizerCauses),
  ];
}

function nameCauses(
  metadata: JsonObject,
  nameComplaint: (name: string) => string | undefined,
): Cause[] {
  const name = textAt(metadata, 'name');
  const prefix = textAt(metadata, 'generateName');
  const ofName =
    name === ''
      ? [required('metadata.name', 'name or generateName is required')]
      : invalidUnless('metadata.name', name, nameComplaint(name));
  if (prefix === '') return ofName;
  // A prefix may end with the hyphen that a generated name continues.
  const complaint = nameComplaint(prefix.endsWith('-') ? `${prefix}a` : prefix);
  return [...ofName, ...invalidUnless('metadata.generateName', prefix, complaint)];
}

function annotationCauses(annotations: JsonObject): Cause[] {
  const field = 'metadata.annotations';
  const causes = Object.keys(annotations).flatMap((key) =>
    invalidUnless(field, key, qualifiedNameComplaint(key.toLowerCase())),
  );
  const sizeBytes = Object.keys(annotations).reduce(
    (sum, key) => sum + Buffer.byteLength(key) + Buffer.byteLength(textAt(annotations, key)),
    0,
  );
  if (sizeBytes > ANNOTATIONS_MAX_BYTES) causes.push(tooLong(field, ANNOTATIONS_MAX_BYTES));
  return causes;
}

function finalizerCauses(finalizer: string): Cause[] {
  const isStandard = finalizer.includes('/') || STANDARD_FINALIZERS.has(finalizer);
  const complaint =
    qualifiedNameComplaint(finalizer) ??
    (isStandard
      ? undefined
      : 'name is neither a standard finalizer name nor is it fully qualified');
  return invalidUnless('metadata.finalizers', finalizer, complaint);
}

function invalidUnless(field: string, value: string, complaint: string | undefined): Cause[] {
  return complaint === undefined ? [] : [invalidValue(field, value, complaint)];
}

function ownerCauses(owners: Json | undefined): Cause[] {
  if (!Array.isArray(owners)) return [];
  return owners.flatMap((owner) =>
    ['apiVersion', 'kind', 'name', 'uid']
      .filter((member) => textAt(owner, member) === '')
      .map((member) =>
        invalidValue(
          `metadata.ownerReferences.${member}`,
          '',
          member === 'apiVersion' ? 'version must not be empty' : 'must not be empty',
        ),
      ),
  );
}

const STANDARD_FINALIZERS = new Set(['kubernetes', 'orphan', 'foregroundDeletion']);
