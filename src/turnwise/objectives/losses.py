"""Loss functions as pure functions of tensors, without devices, files or state; each docstring names its equations."""

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, normalize

#: The logit of a masked candidate; finite, so that a row of nothing else has a gradient of zero and not NaN.
_MASKED = -1e9

#: The smallest square of a length: the square root has no gradient at zero.
_TINY = 1e-24

Weighting = Literal["outside", "inside"]


def hard_negative_nt_xent(
    queries: Tensor,
    responses: Tensor,
    temperature: float,
    *,
    weighting: Weighting = "outside",
    same: Tensor | None = None,
    is_pair: Tensor | None = None,
) -> Tensor:
    """Return DSE's contrastive loss with hard-negative weights (Eqs. 1–3; Zhou et al., 2022), a mean over 2M anchors.

    For an anchor i with partner i⁺, s_ij = cos(e_i, e_j) / τ over the batch's 2M vectors, and over the 2M − 2 negatives
    α_ij = exp(s_ij) / mean_k exp(s_ik):

    - `outside`: ℓ_i = −log( exp(s_ii⁺) / (exp(s_ii⁺) + Σ_j α_ij·exp(s_ij)) ), as in the authors' code, which produced
      the published results. Σ_j α_ij·exp(s_ij) is computed as exp(lse(2s) − lse(s) + log(2M − 2)), which does not
      overflow.
    - `inside`: ℓ_i = −log( exp(s_ii⁺) / Σ_{j≠i} exp(α_ij·s_ij) ), Eq. 1 as printed: the sum includes the positive, with
      the α of Eq. 2. For similar positives their weighted term dominates and pushes them apart; for comparison, not for
      training.

    The gradient flows through α, as in the authors' code.

    Args:
        queries: (M, size); rows need not be normalised.
        responses: (M, size), the i-th belonging to the i-th query.
        temperature: τ.
        weighting: which of the two forms.
        same: (2M, 2M), true where two of the texts (queries, then responses) are equal and therefore no negatives.
            None: the published loss, where they are.
        is_pair: (M,), true where query and response belong together. The others are no anchors, only negatives of the
            anchors (PairSupCon). None: all belong together.
    """
    vectors = normalize(_to_float32(torch.cat([queries, responses])), dim=1)
    count = len(vectors)
    similarity = vectors @ vectors.T / temperature  # (2M, 2M)
    partners = torch.arange(count, device=vectors.device).roll(count // 2)
    positive = similarity.gather(1, partners[:, None])[:, 0]
    negative = ~torch.eye(count, dtype=torch.bool, device=vectors.device)
    negative = negative.scatter(1, partners[:, None], False)
    if same is not None:
        negative &= ~same
    number = negative.sum(1)
    masked = similarity.masked_fill(~negative, _MASKED)
    log_mean = masked.logsumexp(1) - number.clamp(min=1).to(similarity.dtype).log()
    if weighting == "inside":
        weights = (similarity - log_mean[:, None]).exp()
        counted = negative.scatter(1, partners[:, None], True)
        losses = (weights * similarity).masked_fill(~counted, _MASKED).logsumexp(1) - positive
    else:
        log_negatives = (2 * masked).logsumexp(1) - log_mean
        # an anchor whose negatives are all masked has no loss
        losses = torch.where(number > 0, torch.logaddexp(positive, log_negatives) - positive, 0.0)
    if is_pair is None:
        return losses.mean()
    anchors = is_pair.repeat(2)
    return losses.masked_fill(~anchors, 0.0).sum() / anchors.sum().clamp(min=1)


def nt_xent(
    anchors: Tensor,
    positives: Tensor,
    temperature: float,
    *,
    negatives: Tensor | None = None,
    same: Tensor | None = None,
    similarity: Literal["cosine", "dot"] = "cosine",
    reduction: Literal["mean", "none"] = "mean",
) -> Tensor:
    """Return InfoNCE over a batch: each anchor has to find its positive among all positives and negatives.

    ℓ_i = −log( exp(s(a_i, p_i)/τ) / Σ_j exp(s(a_i, p_j)/τ) ), as in SimCSE (Eqs. 1 and 5), TOD-BERT (dot product, τ =
    1) and, in both directions, WMDC.

    Args:
        anchors: (M, size).
        positives: (M, size).
        temperature: τ.
        negatives: (N, size), further candidates for every anchor: SimCSE's hard negatives.
        same: (M, M + N), true where a candidate has the positive's text and is therefore no negative.
        similarity: cosine or dot product.
        reduction: the mean, or one loss per anchor (M,).
    """
    anchors, positives = _to_float32(anchors), _to_float32(positives)
    candidates = positives if negatives is None else torch.cat([positives, _to_float32(negatives)])
    if similarity == "cosine":
        anchors, candidates = normalize(anchors, dim=1), normalize(candidates, dim=1)
    logits = anchors @ candidates.T / temperature
    targets = torch.arange(len(anchors), device=anchors.device)
    if same is not None:
        others = same.clone()
        others[targets, targets] = False
        logits = logits.masked_fill(others, _MASKED)
    return cross_entropy(logits, targets, reduction=reduction)


def inverse_response_frequency(counts: Tensor) -> Tensor:
    """Return WMDC's weights of pairs (Eq. 4): IRF = 1 / (ln freq + 1), freq being the frequency of the response.

    `counts` are the frequencies, at least 1; of any shape, which the weights share.
    """
    return 1 / (_to_float32(counts if counts.is_floating_point() else counts.float()).log() + 1)


def symmetric_nt_xent(
    contexts: Tensor,
    responses: Tensor,
    temperature: float,
    *,
    weights: Tensor | None = None,
    same: Tensor | None = None,
) -> Tensor:
    """Return weighted NT-Xent in both directions, as in WMDC (appendix A and Eq. 5): the mean over i of wᵢ·ℓᵢ.

    ℓᵢ = −½ log( exp(cos(cᵢ, rᵢ)/τ) / Σ_j exp(cos(cᵢ, r_j)/τ) ) − ½ log( exp(cos(rᵢ, cᵢ)/τ) / Σ_j exp(cos(rᵢ, c_j)/τ) ).
    The sum is divided by the number of pairs and not by the sum of their weights: a batch of frequent responses changes
    the encoder less.

    The i-th rows of `contexts` and `responses` (M, size) belong together and need not be normalised. `weights` are
    (M,); None: all 1. `same` (M, M) is true where two pairs have the same context or response and are no negatives.
    """
    forward = nt_xent(contexts, responses, temperature, same=same, reduction="none")
    backward = nt_xent(responses, contexts, temperature, same=same, reduction="none")
    losses = (forward + backward) / 2
    return losses.mean() if weights is None else (weights * losses).mean()


def simclr(first: Tensor, second: Tensor, temperature: float) -> Tensor:
    """Return SimCLR's NT-Xent (Chen et al., 2020, Eq. 1): both sides are anchors, with 2M − 2 negatives each.

    The i-th rows of `first` and `second` (M, size) belong together; they need not be normalised.
    """
    # an anchor is among its own candidates, half a batch away from its partner
    itself = torch.eye(2 * len(first), dtype=torch.bool, device=first.device).roll(len(first), 1)
    return nt_xent(torch.cat([first, second]), torch.cat([second, first]), temperature, same=itself)


def supervised_contrastive(vectors: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """Return the supervised contrastive loss (Khosla et al., 2020, Eq. 2), a mean over anchors that share a label.

    ℓ_i = −1/|P(i)| Σ_{p ∈ P(i)} log( exp(s_ip) / Σ_{a ≠ i} exp(s_ia) ), with s_ij = cos(e_i, e_j) / τ and P(i) the
    other vectors of the same label. A vector that is the only one of its label is a negative, but no anchor.

    `vectors` are (M, size) and need not be normalised, `labels` are integers (M,).
    """
    vectors = normalize(_to_float32(vectors), dim=1)
    itself = torch.eye(len(vectors), dtype=torch.bool, device=vectors.device)
    similarity = (vectors @ vectors.T / temperature).masked_fill(itself, _MASKED)
    positive = (labels[:, None] == labels) & ~itself
    number = positive.sum(1)
    log_probabilities = (similarity - similarity.logsumexp(1, keepdim=True)).masked_fill(~positive, 0.0)
    losses = -log_probabilities.sum(1) / number.clamp(min=1)
    return losses.sum() / (number > 0).sum().clamp(min=1)


def prototype_nt_xent(vectors: Tensor, labels: Tensor, support: Tensor, temperature: float) -> Tensor:
    """Return the loss of assigning utterances to prototypes (Snell et al., 2017, with cosines), a mean over queries.

    The vectors of a label are divided into two halves, and each in turn makes the prototype c, the normalised mean of
    its normalised vectors, to which the other half is assigned: ℓ_i = −log( exp(cos(e_i, c_y)/τ) / Σ_k
    exp(cos(e_i, c_k)/τ) ). A label with nothing in a half has no prototype there, and its vectors are no queries.

    `vectors` are (M, size) and need not be normalised; `labels` (M,) are numbers below M; `support` (M,) is true for
    the first half of each label.
    """
    vectors = normalize(_to_float32(vectors), dim=1)
    losses, queries = [], []
    for half in (support, ~support):
        members = half.to(vectors.dtype)
        sums = torch.zeros_like(vectors).index_add(0, labels, vectors * members[:, None])
        exists = torch.zeros_like(members).index_add(0, labels, members) > 0
        logits = (vectors @ normalize(sums, dim=1).T / temperature).masked_fill(~exists, _MASKED)
        query = ~half & exists[labels]
        losses.append((cross_entropy(logits, labels, reduction="none") * query).sum())
        queries.append(query.sum())
    return torch.stack(losses).sum() / torch.stack(queries).sum().clamp(min=1)


def relation_distillation(vectors: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """Return how far similarities within a batch have moved from a teacher's, a mean over texts.

    With pᵢ(j) = softmax_j≠i( cos(t_i, t_j)/τ ) for the teacher's vectors and qᵢ for the model's, it is the divergence
    KL(pᵢ ‖ qᵢ). `vectors` and `teacher` are (M, size), of any two sizes, and need not be normalised.
    """

    def log_probabilities(rows: Tensor) -> Tensor:
        unit = normalize(_to_float32(rows), dim=1)
        similarity = unit @ unit.T / temperature
        itself = torch.eye(len(unit), dtype=torch.bool, device=unit.device)
        return similarity.masked_fill(itself, _MASKED).log_softmax(1)

    expected = log_probabilities(teacher)
    return (expected.exp() * (expected - log_probabilities(vectors))).sum(1).mean()


def matching_guided_embedding(context: Tensor, context_mask: Tensor, response: Tensor, response_mask: Tensor) -> Tensor:
    """Return DialogueCSE's embedding of a response refined by each context turn (Eqs. 3 and 4; Liu et al., 2021).

    For the token states Ū of a turn and R̄ of the response, M = ŪR̄ᵀ/√d and R̂ = MR̄: a row for every token of the
    turn, each a sum of the response's token states, without softmax. Padding is ignored, and rows of padding are zero.

    Training only needs R̂ pooled, which `guided_vectors` and `guided_cosine` compute without M.

    Args:
        context: (…, turns, context tokens, hidden).
        context_mask: (…, turns, context tokens), true or 1 for tokens.
        response: (…, response tokens, hidden); leading axes broadcast with the context's.
        response_mask: (…, response tokens).

    Returns:
        (…, turns, context tokens, hidden).
    """
    turns = _to_float32(context) * context_mask[..., None]
    tokens = (_to_float32(response) * response_mask[..., None])[..., None, :, :]
    matching: Tensor = turns @ tokens.mT / context.shape[-1] ** 0.5  # M
    return matching @ tokens


def guided_vectors(turns: Tensor, responses: Tensor, mask: Tensor) -> Tensor:
    """Return the refined embeddings of responses (DialogueCSE, Eq. 4), each pooled over the tokens of the context turn.

    The mean over the rows of R̂ = ŪR̄ᵀR̄/√d is ūR̄ᵀR̄/√d, with ū the mean of the turn's token states; no matching
    matrix is needed. `turns` are the ū (contexts, turns, hidden), `responses` token states (candidates, tokens, hidden)
    with their mask (candidates, tokens); the result is (contexts, candidates, turns, hidden).
    """
    tokens = _to_float32(responses) * mask[..., None]
    matching = torch.einsum("ith,jnh->ijtn", _to_float32(turns), tokens) / turns.shape[-1] ** 0.5
    return torch.einsum("ijtn,jnh->ijth", matching, tokens)


def guided_cosine(contexts: Tensor, responses: Tensor, mask: Tensor) -> Tensor:
    """Return sim(R̄, R̃) of DialogueCSE's Eq. 8 for all contexts and responses, if turn weights do not depend on those.

    With such weights (Eq. 7), R̃ pooled is cR̄ᵀR̄ up to a factor that the cosine cancels, c being the weighted sum of
    the turns' vectors. With m = R̄c over the response's tokens and K = R̄R̄ᵀ, its dot product with the response's mean
    r̄ is (R̄r̄)·m, and its squared length m·Km. A pair needs one number per token and no vector, so all responses of a
    batch can be candidates. `contexts` are the c (contexts, hidden), `responses` token states (candidates, tokens,
    hidden) with their mask (candidates, tokens); the result is (contexts, candidates).
    """
    tokens = _to_float32(responses) * mask[..., None]
    pooled = tokens.sum(1) / mask.sum(1, keepdim=True).clamp(min=1)
    # normalised first, so that the products stay within the range of float32
    matched = tokens @ normalize(_to_float32(contexts), dim=1).T  # m: (candidates, tokens, contexts)
    product = torch.einsum("jn,jni->ji", torch.einsum("jnh,jh->jn", tokens, pooled), matched)
    squared = ((tokens @ tokens.mT @ matched) * matched).sum(1)
    lengths = squared.clamp(min=_TINY).sqrt() * (pooled * pooled).sum(1, keepdim=True).clamp(min=_TINY).sqrt()
    return (product / lengths).T


def candidate_nt_xent(similarity: Tensor, positives: Tensor, candidates: Tensor, temperature: float) -> Tensor:
    """Return NT-Xent of each context over its own candidates (DialogueCSE, Eq. 8), the mean over the contexts.

    `similarity` is (contexts, responses), `positives` the number of each context's true response (contexts,), and
    `candidates` is true for the true response and its negatives (contexts, responses).
    """
    return cross_entropy((_to_float32(similarity) / temperature).masked_fill(~candidates, _MASKED), positives)


def masked_language_model(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the sum of the cross-entropy over masked tokens: logits (masked, vocabulary), targets (masked,)."""
    return cross_entropy(_to_float32(logits), targets, reduction="sum")


def binary_classification(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the sum of the binary cross-entropy: logits and labels (items,).

    UMS's pointwise loss of response selection (Eq. 1) over pairs, and ELECTRA's detection of replaced tokens (Clark et
    al., 2020).
    """
    values = _to_float32(logits)
    return binary_cross_entropy_with_logits(values, labels.to(values.dtype), reduction="sum")


def mark_classification(
    logits: Tensor, rows: Tensor, targets: Tensor, form: Literal["sigmoid", "softmax"] = "sigmoid"
) -> Tensor:
    """Return UMS's loss of finding the target among a sequence's marks (Eq. 2), a sum over sequences.

    - `sigmoid`: binary cross-entropy at every mark, 1 for the target and 0 for the others, the mean over the marks.
    - `softmax`: cross-entropy over a sequence's marks, of which one is the target.

    All are (marks,): `logits`, those of a sequence next to each other; `rows`, the number of a mark's sequence;
    `targets`, true at the one target of every sequence.
    """
    values = _to_float32(logits)
    count = int(rows.max()) + 1
    if form == "sigmoid":
        marks = torch.bincount(rows, minlength=count)
        losses = binary_cross_entropy_with_logits(values, targets.to(values.dtype), reduction="none")
        return (losses / marks[rows]).sum()
    greatest = values.new_full((count,), _MASKED).scatter_reduce(0, rows, values.detach(), "amax")
    sums = values.new_zeros(count).index_add(0, rows, (values - greatest[rows]).exp())
    return (sums.log() + greatest).sum() - values[targets.bool()].sum()


def _to_float32(values: Tensor) -> Tensor:
    """Convert half precision to float32: losses are computed in full precision."""
    return values.float() if values.dtype in (torch.bfloat16, torch.float16) else values
